//! Laws of service times in the short form of a command line.

use tidegate_config::units::UnitError;
use tidegate_config::{Dur, Share};
use tidegate_sim::service::{Law, LawError, LawSpec};

/// The forms, for messages and help.
pub const FORMS: &str = "det:MEAN, exp:MEAN, erlang:MEAN,STAGES, hyper:MEAN,CV2, \
                         lognormal:MEAN,CV2, pareto:MEAN,SHAPE or bimodal:FAST,SLOW,SLOW_SHARE";

/// Why a short form was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LawTextError {
    /// Not one of the forms.
    #[error("`{0}` is not a law of service times: write {FORMS}, like exp:20ms")]
    Form(String),
    /// A number that is not one.
    #[error("`{0}` is not a number")]
    Number(String),
    /// A quantity that is not one.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A law that cannot be.
    #[error(transparent)]
    Law(#[from] LawError),
}

/// Reads `exp:20ms` and its like.
///
/// # Errors
/// An unknown name, a wrong number of arguments, or values that make no law.
pub fn parse_law(text: &str) -> Result<Law, LawTextError> {
    let form = || LawTextError::Form(text.to_owned());
    let (name, rest) = text.split_once(':').ok_or_else(form)?;
    let arguments: Vec<&str> = rest.split(',').map(str::trim).collect();
    let spec = match (name, arguments.as_slice()) {
        ("det", [mean]) => LawSpec::Deterministic { mean: dur(mean)? },
        ("exp", [mean]) => LawSpec::Exponential { mean: dur(mean)? },
        ("erlang", [mean, stages]) => LawSpec::Erlang {
            mean: dur(mean)?,
            stages: number(stages)?,
        },
        ("hyper", [mean, cv2]) => LawSpec::HyperExponential {
            mean: dur(mean)?,
            cv2: number(cv2)?,
        },
        ("lognormal", [mean, cv2]) => LawSpec::LogNormal {
            mean: dur(mean)?,
            cv2: number(cv2)?,
        },
        ("pareto", [mean, shape]) => LawSpec::Pareto {
            mean: dur(mean)?,
            shape: number(shape)?,
        },
        ("bimodal", [fast, slow, slow_share]) => LawSpec::Bimodal {
            fast: dur(fast)?,
            slow: dur(slow)?,
            slow_share: slow_share.parse::<Share>()?,
        },
        _ => return Err(form()),
    };
    Ok(spec.try_into()?)
}

fn dur(text: &str) -> Result<Dur, UnitError> {
    text.parse()
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, LawTextError> {
    text.parse()
        .map_err(|_| LawTextError::Number(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_keeps_its_mean() {
        for (text, mean) in [
            ("det:20ms", 0.02),
            ("exp:20ms", 0.02),
            ("erlang:20ms,4", 0.02),
            ("hyper:20ms,4", 0.02),
            ("lognormal:20ms, 4", 0.02),
            ("pareto:20ms,1.5", 0.02),
            ("bimodal:10ms,110ms,10%", 0.02),
        ] {
            let law = parse_law(text).unwrap();
            assert!((law.mean() - mean).abs() < 1e-9, "{text}: {}", law.mean());
        }
    }

    #[test]
    fn refusals_say_how_to_write_it() {
        let message = |text| parse_law(text).unwrap_err().to_string();
        assert!(message("exp").contains("like exp:20ms"));
        assert!(message("exp:20").contains("not a duration"));
        assert!(message("erlang:20ms").contains("erlang:MEAN,STAGES"));
        assert!(message("hyper:20ms,x").contains("`x` is not a number"));
        assert!(message("pareto:20ms,0.5").contains("above 1"));
    }
}
