//! The proxy as a whole: bind, serve, shut down.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use tokio::runtime::LocalOptions;
use tokio::sync::watch;
use tokio::task::spawn_local;

use crate::alarm::SWEEP;
use crate::client::lobby;
use crate::config::Config;
use crate::listen::inherited::{self, Inherited};
use crate::listen::{self, ListenError, accept};
use crate::saved_state;
use crate::settings::SettingsError;
use crate::state::State;
use crate::ticker;
use crate::worker::Worker;

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system refuses another thread.
    #[error("cannot start a worker thread: {0}; allow more threads or set `threads`")]
    Thread(#[from] io::Error),
}

/// The live data plane.
///
/// ```no_run
/// # use tidegate_proxy::{Proxy, config::Config};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_text("t.toml", "listen = '127.0.0.1:0'\nupstream = 'http://127.0.0.1:3000'")?;
/// let bound = Proxy::bind(config)?;
/// println!("listening on {}", bound.local_addr());
/// bound.serve(async { tokio::signal::ctrl_c().await.unwrap() }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy;

impl Proxy {
    /// Makes a proxy and opens its listening sockets. Nothing is accepted before
    /// [`Bound::serve`] or [`Bound::start`].
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub fn bind(config: Config) -> Result<Bound, BindError> {
        Self::take_over(config, &mut Inherited::default())
    }

    /// As [`Proxy::bind`], with the sockets that another process opened where they fit.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub fn take_over(config: Config, inherited: &mut Inherited) -> Result<Bound, BindError> {
        let state = State::new(config)?;
        saved_state::resume(&state, inherited.saved_state.as_ref());
        let listeners = &state.config().listen;
        let mut sockets: Vec<Vec<TcpListener>> = Vec::new();
        let mut addrs = Vec::new();
        for (index, listener) in listeners.iter().enumerate() {
            let addr = *listener.addr;
            let refused = |cause| ListenError { addr, cause };
            let passed = inherited.take(&inherited::name(index), addr);
            let bound = if passed.is_empty() {
                listen::bind(addr, state.threads())?
            } else {
                inherited::spread(passed, state.threads()).map_err(refused)?
            };
            for socket in &bound {
                listen::defer(socket, listener.defer_accept).map_err(refused)?;
            }
            addrs.extend(bound[0].local_addr());
            sockets.push(bound);
        }
        Ok(Bound {
            state,
            sockets,
            addrs,
        })
    }
}

/// A proxy whose sockets are open.
#[derive(Debug)]
pub struct Bound {
    state: Arc<State>,
    /// By listener; at least one per worker.
    sockets: Vec<Vec<TcpListener>>,
    addrs: Vec<SocketAddr>,
}

impl Bound {
    /// Where the first listener is bound.
    ///
    /// # Panics
    /// Without any listener, which [`Config`]'s checks refuse.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addrs[0]
    }

    /// Where the listeners are bound, in the order of the configuration.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// What the proxy shares with those who operate it.
    #[must_use]
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Its listening sockets with their names, to be passed on to a successor. While somebody holds
    /// them the addresses are taken.
    ///
    /// # Errors
    /// When the system refuses more descriptors.
    pub fn sockets(&self) -> io::Result<Vec<(String, TcpListener)>> {
        let mut all = Vec::new();
        for (index, sockets) in self.sockets.iter().enumerate() {
            for socket in sockets {
                all.push((inherited::name(index), socket.try_clone()?));
            }
        }
        Ok(all)
    }

    /// Starts the worker threads.
    ///
    /// # Errors
    /// When the system refuses a thread; then none is left running.
    pub fn start(self) -> Result<Running, BindError> {
        let (done, finished) = watch::channel(());
        let mut running = Running {
            state: self.state,
            addrs: self.addrs,
            threads: Vec::new(),
            finished,
        };
        let ticking = ticker::start(Arc::clone(&running.state))?;
        let workers = running.state.threads();
        let mut sockets: Vec<Sockets> = (0..workers).map(|_| Vec::new()).collect();
        for (listener, its) in self.sockets.into_iter().enumerate() {
            for (number, socket) in its.into_iter().enumerate() {
                sockets[number % workers].push((listener, socket));
            }
        }
        for (index, sockets) in sockets.into_iter().enumerate() {
            let (state, done) = (Arc::clone(&running.state), done.clone());
            let ticking = ticking.clone();
            let (started, start) = sync_channel(1);
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || {
                    // Made here, as it cannot move: what runs on it need not be fit for other
                    // threads.
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build_local(LocalOptions::default());
                    let made = runtime.and_then(|it| Ok((it, Worker::new(index, state)?)));
                    let (runtime, worker) = match made {
                        Ok(made) => made,
                        Err(error) => return drop(started.send(error)),
                    };
                    drop(started);
                    let state = Arc::clone(&worker.state);
                    runtime.block_on(work(Rc::new(worker), sockets));
                    state.progress.ended(index);
                    drop(ticking);
                    drop(done);
                })?;
            running.threads.push(thread);
            if let Ok(error) = start.recv() {
                return Err(error.into());
            }
        }
        Ok(running)
    }

    /// Serves until `shutdown` is ready, then finishes what is in flight.
    ///
    /// # Errors
    /// As [`Bound::start`].
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), BindError> {
        let mut running = self.start()?;
        shutdown.await;
        running.shut_down();
        running.finished().await;
        Ok(())
    }
}

/// A proxy that serves. Dropping it shuts it down without waiting.
#[derive(Debug)]
pub struct Running {
    state: Arc<State>,
    addrs: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    finished: watch::Receiver<()>,
}

impl Running {
    /// Where the first listener is bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addrs[0]
    }

    /// What the proxy shares with those who operate it.
    #[must_use]
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Begins to shut down.
    pub fn shut_down(&self) {
        self.state.shut_down();
    }

    /// Begins to shut down, since another process accepts from the same sockets.
    pub fn hand_over(&self) {
        self.state.hand_over();
    }

    /// Waits until every worker has finished.
    pub async fn finished(&mut self) {
        // Fails when the last worker has dropped its sender.
        while self.finished.changed().await.is_ok() {}
    }

    /// Waits, blocking the thread, until every worker has finished.
    pub fn join(mut self) {
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.shut_down();
    }
}

/// One worker's sockets, each with the number of its listener.
type Sockets = Vec<(usize, TcpListener)>;

/// One worker's life.
async fn work(worker: Rc<Worker>, sockets: Sockets) {
    let sweep = spawn_local(Rc::clone(&worker).sweep());
    let lobby = spawn_local(lobby::run(Rc::clone(&worker)));
    let mut accepting = Vec::new();
    for (index, socket) in sockets {
        let accept = accept::run(Rc::clone(&worker), socket, index);
        accepting.push(spawn_local(accept));
    }
    for accepting in accepting {
        // A socket that was bound and set non-blocking can be watched.
        let _ = accepting.await;
    }
    drain(&worker).await;
    worker.pool.clear();
    worker.lobby.clear();
    sweep.abort();
    lobby.abort();
}

/// Waits for connections to end, within the grace period.
async fn drain(worker: &Worker) {
    let grace = *worker.settings().config.timeouts.grace;
    let until = worker.state.now() + grace;
    while worker.open() > 0 && worker.state.now() < until {
        tokio::time::sleep(SWEEP).await;
    }
}
