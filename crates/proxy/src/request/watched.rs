//! What follows a request: the recording, the tables of the costliest paths, its trace. Most
//! requests are followed by none of them, so all share one pointer.

use std::rc::Rc;

use tidegate_control::Timestamp;

use crate::metrics::Sampled;
use crate::record::Row;
use crate::trace::Trace;
use crate::worker::LocalApplication;

/// A request that is followed. The exchange and the slot hold it.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Its row in the recording.
    pub(crate) row: Option<Rc<Row>>,
    /// Where its cost is noted.
    pub(crate) sampled: Option<Sampled>,
    /// Its trace.
    pub(crate) trace: Option<Rc<Trace>>,
}

impl Watched {
    /// A request begins; nothing if it is not recorded.
    pub(crate) fn begin(
        application: &Rc<LocalApplication>,
        arrived: Timestamp,
    ) -> Option<Rc<Self>> {
        let row = Row::begin(application, arrived)?;
        Some(Rc::new(Self {
            row: Some(row),
            sampled: None,
            trace: None,
        }))
    }
}
