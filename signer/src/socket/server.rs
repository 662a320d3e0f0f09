//! The signer's side: answers processes of the listed users, each call on a connection of its own.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Plain;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{Signer, with_causes};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::Embedded;
use crate::socket::{Answer, Answered, CALL_TIME_MAX, Call, read_frame, write_frame};

/// How many calls are answered at once; others wait.
const CALLS_MAX: usize = 64;
/// After a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The system refuses.
    #[error("cannot listen at {path}")]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Something is there that is no socket that nobody listens at.
    #[error("cannot listen at {path}: {what}")]
    Taken {
        /// The socket.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
}

/// A signer that listens. It removes its socket when it is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    listener: UnixListener,
    signer: Arc<Embedded>,
    uids: Vec<u32>,
}

impl Server {
    /// Listens at `path`; processes of the users `uids` are answered. A socket that a dead process left is replaced.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn bind(path: &Path, signer: Embedded, uids: Vec<u32>) -> Result<Self, ServeError> {
        let taken = |what| ServeError::Taken { path: path.to_owned(), what };
        let failed = |source| ServeError::Io { path: path.to_owned(), source };
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(taken("a file is there that is no socket"));
            }
            Ok(_) if Plain::connect(path).is_ok() => return Err(taken("another process listens there")),
            Ok(_) => fs::remove_file(path).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        // Any user may connect: who is answered is decided by what the system says of the other side.
        fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed)?;
        Ok(Server { path: path.to_owned(), listener, signer: Arc::new(signer), uids })
    }

    /// Answers until it is dropped.
    pub async fn run(&self) {
        let mut calls = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept(), if calls.len() < CALLS_MAX => accepted,
                Some(_) = calls.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) if self.is_allowed(&stream) => {
                    let signer = Arc::clone(&self.signer);
                    calls.spawn(async move { answer_within(stream, &signer).await });
                }
                Ok(_) => {}
                Err(error) => {
                    warn!("a connection could not be taken: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn is_allowed(&self, stream: &UnixStream) -> bool {
        match stream.peer_cred() {
            Ok(peer) if self.uids.contains(&peer.uid()) => true,
            Ok(peer) => {
                warn!("a process of user {} is not answered: --uid lists those that are", peer.uid());
                false
            }
            Err(error) => {
                warn!("a process whose user is not known is not answered: {error}");
                false
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            info!("the socket {} stays: {error}", self.path.display());
        }
    }
}

async fn answer_within(mut stream: UnixStream, signer: &Embedded) {
    match tokio::time::timeout(CALL_TIME_MAX, answer(&mut stream, signer)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!("a call was not answered: {}", with_causes(&error)),
        Err(_) => warn!("a call was not answered within {} s", CALL_TIME_MAX.as_secs()),
    }
}

async fn answer(stream: &mut UnixStream, signer: &Embedded) -> io::Result<()> {
    let answer = match read_frame(stream).await? {
        Call::Addresses(paths) => signer.addresses(&paths).await.map(Answered::Addresses),
        Call::Sign(requests) => signer.sign(&requests).await.map(Answered::Signed),
        Call::Journal { chain_ref, behind } => signer.journal(&chain_ref, behind).await.map(Answered::Journal),
    };
    let answer = answer.unwrap_or_else(|away| Answered::Unavailable(away.0));
    write_frame(stream, &Answer { signer: signer.id().to_owned(), answer }).await
}
