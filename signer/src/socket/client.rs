//! The side of who sends: the port over the socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landfall_chain::{Address, JournalPage, KeyPath, Refusal, SignRequest, Signed, Signer, SignerUnavailable, Signing};
use tokio::net::UnixStream;

use crate::socket::{Answer, Answered, CALL_TIME_MAX, Call, read_frame, write_frame};

/// A signer that listens at a socket. It is there or away by the moment; another signer than the first is away.
#[derive(Debug)]
pub struct Remote {
    path: PathBuf,
    id: OnceLock<String>,
}

impl Remote {
    /// The signer at this socket. Nothing is asked yet.
    pub fn at(path: &Path) -> Self {
        Remote { path: path.to_owned(), id: OnceLock::new() }
    }

    async fn call(&self, call: Call) -> Result<Answered, SignerUnavailable> {
        let away = |what: String| SignerUnavailable(format!("the signer at {}: {what}", self.path.display()));
        let asked = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            write_frame(&mut stream, &call).await?;
            read_frame::<Answer>(&mut stream).await
        };
        let answer: io::Result<Answer> = match tokio::time::timeout(CALL_TIME_MAX, asked).await {
            Ok(answer) => answer,
            Err(_) => return Err(away(format!("no answer within {} s", CALL_TIME_MAX.as_secs()))),
        };
        let Answer { signer, answer } = answer.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                away("it hung up: does it serve this user (`--uid`)?".to_owned())
            }
            _ => away(error.to_string()),
        })?;
        let first = self.id.get_or_init(|| signer.clone());
        if *first != signer {
            return Err(away(format!(
                "it is signer {signer}, and the one before was {first}: start anew, if that is meant"
            )));
        }
        Ok(answer)
    }

    fn unexpected(&self) -> SignerUnavailable {
        SignerUnavailable(format!("the signer at {} answered something else than was asked", self.path.display()))
    }
}

impl Signer for Remote {
    /// Empty before its first answer.
    fn id(&self) -> &str {
        self.id.get().map_or("", String::as_str)
    }

    fn addresses<'s>(&'s self, paths: &'s [KeyPath]) -> Signing<'s, Vec<Address>> {
        Box::pin(async move {
            match self.call(Call::Addresses(paths.to_vec())).await? {
                Answered::Addresses(addresses) if addresses.len() == paths.len() => Ok(addresses),
                Answered::Unavailable(why) => Err(SignerUnavailable(why)),
                Answered::Addresses(_) | Answered::Signed(_) | Answered::Journal(_) => Err(self.unexpected()),
            }
        })
    }

    fn sign<'s>(&'s self, requests: &'s [SignRequest]) -> Signing<'s, Vec<Result<Signed, Refusal>>> {
        Box::pin(async move {
            match self.call(Call::Sign(requests.to_vec())).await? {
                Answered::Signed(signed) if signed.len() == requests.len() => Ok(signed),
                Answered::Unavailable(why) => Err(SignerUnavailable(why)),
                Answered::Addresses(_) | Answered::Signed(_) | Answered::Journal(_) => Err(self.unexpected()),
            }
        })
    }

    fn journal<'s>(&'s self, chain_ref: &'s str, behind: u64) -> Signing<'s, JournalPage> {
        Box::pin(async move {
            match self.call(Call::Journal { chain_ref: chain_ref.to_owned(), behind }).await? {
                Answered::Journal(page) => Ok(page),
                Answered::Unavailable(why) => Err(SignerUnavailable(why)),
                Answered::Addresses(_) | Answered::Signed(_) => Err(self.unexpected()),
            }
        })
    }
}
