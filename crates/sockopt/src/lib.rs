//! Calls of the system that no library makes without unsafe code.
//!
//! There are two, and they are all the unsafe code of this workspace: a socket option, which the
//! standard library has as `TcpStreamExt::set_deferaccept` and not stable, and a call of the
//! allocator.
//!
//! Decision: docs/decisions/0055-tcp-defer-accept.md.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets the kernel hand a connection of a listening socket over only when its client has said
/// something, or has been silent for about this many seconds (`TCP_DEFER_ACCEPT`).
///
/// # Errors
/// What the system says.
pub fn defer_accept(listener: impl AsFd, seconds: u16) -> io::Result<()> {
    let seconds = libc::c_int::from(seconds);
    #[expect(unsafe_code, reason = "a system call that no library makes for us")]
    // SAFETY: the descriptor is borrowed and so open; the kernel reads an integer of the size that
    // it is told, which lives until the call returns, and keeps no pointer to it.
    let result = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of_val(&seconds) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the allocator give memory that is free back to the system, where that is glibc's. It keeps
/// pages with a hole in them otherwise, for as long as the process lives.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    #[expect(
        unsafe_code,
        reason = "a call of the allocator that nobody else makes for us"
    )]
    // SAFETY: it takes the allocator's own locks, may be called from any thread at any time, and
    // changes nothing that a program can see.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn who_has_spoken_is_handed_over_and_who_has_not_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        defer_accept(&listener, 30).unwrap();
        // On the loopback a segment has been looked at when the call that sent it returns.
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        client.write_all(b"hello").unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    }

    #[test]
    fn who_leaves_without_a_word_is_handed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        defer_accept(&listener, 30).unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        listener.accept().unwrap();
    }

    #[test]
    fn what_is_no_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(defer_accept(&file, 1).is_err());
    }
}
