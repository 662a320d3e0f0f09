//! `landfall signer init|import|serve|addresses|adopt|rotate-passphrase|verify-journal`.
//!
//! Words and passphrases come from files and the terminal, never from arguments; only `init` shows words, once.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use landfall_chain::{Address, Family, KeyPath, Signer as _};
use landfall_signer::{Embedded, Keystore, NewKeystore, Passphrase, Policy, Server, WORK_FACTOR, Words, verify};
use nix::unistd::Uid;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::app;
use crate::cli::{How, asked_to_stop, existing, json_line, load, out};
use crate::random;
use crate::time::Clock;

/// How many words are asked back, of both seeds together.
const ASKED_BACK: usize = 3;
/// How many words are in a line.
const LINE_WORDS: usize = 6;
/// The most bytes of a file with words.
const WORDS_BYTES_MAX: u64 = 4096;

#[derive(Subcommand, Debug)]
pub(super) enum Signer {
    /// Make a keystore with two new seeds. Their words are shown this once, and three of them are asked back.
    Init {
        #[command(flatten)]
        keystore: KeystoreArgs,
        /// Print the words to stdout, one line for each seed, and ask none of them back: for scripts that keep them.
        #[arg(long)]
        print_words_without_asking: bool,
    },
    /// Make a keystore with seeds whose words you have.
    Import {
        #[command(flatten)]
        keystore: KeystoreArgs,
        /// A file with the 12 to 24 words of the seed of accounts; its owner alone may read it.
        #[arg(long, value_name = "FILE")]
        wallets: PathBuf,
        /// The same of the seed of sponsors, which is another.
        #[arg(long, value_name = "FILE")]
        sponsors: PathBuf,
    },
    /// Derive the addresses of an account, on each family of chains.
    Addresses {
        #[command(flatten)]
        keystore: KeystoreArgs,
        /// The account's id.
        #[arg(long, value_name = "ID")]
        account: String,
        /// Of a further address, the request that asked for it. Without it, the address that pays.
        #[arg(long, value_name = "REQUEST_ID")]
        request: Option<String>,
        /// A line of JSON for each.
        #[arg(long)]
        json: bool,
    },
    /// Hold the keys in a process of its own, and sign what the configuration's chains list for who connects. It opens no
    /// store and connects to nothing; `[transfers] signer = "unix:PATH"` asks it.
    Serve {
        #[command(flatten)]
        keystore: KeystoreArgs,
        /// Where it listens.
        #[arg(long, value_name = "PATH")]
        socket: PathBuf,
        /// The number of a user whose processes are answered; may be repeated. Without it, its own user.
        #[arg(long, value_name = "UID")]
        uid: Vec<u32>,
    },
    /// Take the signer that is asked next as the one of this store: after a new keystore, or a journal from a copy.
    Adopt {
        #[command(flatten)]
        how: How,
    },
    /// Seal a keystore under another passphrase. Refused while a process has it open. If it is cut off, run it again. What was
    /// copied of the keystore before still opens with the old one.
    RotatePassphrase {
        #[command(flatten)]
        keystore: KeystoreArgs,
        /// A file whose first line is the new passphrase; its owner alone may read it.
        #[arg(long, value_name = "FILE")]
        new_passphrase_file: PathBuf,
    },
    /// Check that each entry of a keystore's journal follows from those before it, also while it is open.
    VerifyJournal {
        /// The keystore.
        dir: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(super) struct KeystoreArgs {
    /// The keystore.
    dir: PathBuf,
    /// A file whose first line is its passphrase; its owner alone may read it.
    #[arg(long, value_name = "FILE")]
    passphrase_file: PathBuf,
}

/// The seeds of a keystore.
struct Seeds {
    wallets: Words,
    sponsors: Words,
}

#[derive(Serialize)]
struct Adopted {
    /// On how many the store knew another one, or an earlier state of it.
    chains: usize,
}

#[derive(Serialize)]
struct Derived {
    family: &'static str,
    path: String,
    address: String,
}

impl Signer {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        match self {
            Signer::Init { keystore, print_words_without_asking } => {
                let passphrase = keystore.passphrase()?;
                ensure!(!keystore.is_there(), "{} is there already; nothing was made", keystore.dir.display());
                let seeds = Seeds { wallets: Words::random()?, sponsors: Words::random()? };
                if print_words_without_asking {
                    print(&seeds);
                } else {
                    show_and_ask_back(&seeds)?;
                }
                keystore.make(&seeds, &passphrase)
            }
            Signer::Import { keystore, wallets, sponsors } => {
                let passphrase = keystore.passphrase()?;
                keystore.make(&Seeds { wallets: read(&wallets)?, sponsors: read(&sponsors)? }, &passphrase)
            }
            Signer::Addresses { keystore, account, request, json } => {
                let tag = request.unwrap_or_default();
                let paths = [Family::Evm, Family::Solana].map(|family| KeyPath::of_wallet(family, &account, &tag));
                // Nothing may be signed by it.
                let signer = Embedded::open(&keystore.dir, &keystore.passphrase()?, Policy::default(), Arc::new(|| 0))?;
                for (path, address) in paths.iter().zip(signer.addresses(&paths).await?) {
                    let derived = Derived::of(path, address);
                    if json {
                        say!("{}", json_line(&derived)?);
                    } else {
                        say!("{:<6}  {}  {}", derived.family, derived.path, derived.address);
                    }
                }
                Ok(())
            }
            Signer::Serve { keystore, socket, uid } => {
                let config = load(config)?;
                let policy = app::policy(&config)?;
                let clock = Clock::system();
                let now = move || u64::try_from(clock.now().0 / 1_000_000).unwrap_or(0);
                let (passphrase, token) = (keystore.passphrase()?, config.token.as_ref());
                let signer = app::embedded(&keystore.dir, &passphrase, token, policy, Arc::new(now))?;
                let uids = if uid.is_empty() { vec![Uid::current().as_raw()] } else { uid };
                let stop = asked_to_stop()?;
                let id = signer.id().to_owned();
                let server = Server::bind(&socket, signer, uids)?;
                say!("signer {id} listens at {}", socket.display());
                tokio::select! {
                    () = server.run() => bail!("nothing is answered any more"),
                    () = stop => Ok(()),
                }
            }
            Signer::Adopt { how } => {
                let db = existing(config).await?;
                let chains = how.decide(async |by| by.adopt_signer(&db).await).await?;
                let is = how.is();
                let text = format!("the signer that is asked next {is} the one of this store, on {chains} chains");
                say!("{}", if how.json { json_line(&Adopted { chains })? } else { text });
                Ok(())
            }
            Signer::RotatePassphrase { keystore, new_passphrase_file } => {
                let (old, new) = (keystore.passphrase()?, Passphrase::from_file(&new_passphrase_file)?);
                Keystore::rotate_passphrase(&keystore.dir, &old, &new, WORK_FACTOR)?;
                let dir = keystore.dir.display();
                say!("the keystore {dir} opens with the new passphrase; copies from before open with the old one");
                Ok(())
            }
            Signer::VerifyJournal { dir } => verify_journal(&dir),
        }
    }
}

impl KeystoreArgs {
    fn passphrase(&self) -> anyhow::Result<Passphrase> {
        Ok(Passphrase::from_file(&self.passphrase_file)?)
    }

    /// Whether something is in the folder that a keystore could overwrite.
    fn is_there(&self) -> bool {
        std::fs::read_dir(&self.dir).is_ok_and(|mut entries| entries.next().is_some())
    }

    fn make(&self, Seeds { wallets, sponsors }: &Seeds, passphrase: &Passphrase) -> anyhow::Result<()> {
        let created_at = u64::try_from(Clock::system().now().0 / 1_000_000)?;
        let new = NewKeystore { wallets, sponsors, passphrase, work_factor: WORK_FACTOR, created_at };
        let id = new.create(&self.dir)?;
        say!("the keystore of signer {id} is made in {}", self.dir.display());
        Ok(())
    }
}

impl Derived {
    fn of(path: &KeyPath, address: Address) -> Self {
        let family = match path.family {
            Family::Evm => "evm",
            Family::Solana => "solana",
        };
        Derived { family, path: path.to_string(), address: address.to_string() }
    }
}

/// The words of a file, which others may not read.
fn read(path: &Path) -> anyhow::Result<Words> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {name}"))?;
    let is_open = metadata.is_file() && metadata.permissions().mode() & 0o077 != 0;
    ensure!(!is_open, "the words in {name} can be read by others: chmod 600 {name}");
    // Whole at once: a buffer that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(2 * usize::try_from(WORDS_BYTES_MAX)?));
    file.take(WORDS_BYTES_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    text.parse().with_context(|| format!("{name}"))
}

/// A line for each seed, for a script.
fn print(seeds: &Seeds) {
    for (name, words) in seeds.each() {
        out::write(format_args!("{name} {}\n", words.phrase().as_str()));
    }
}

fn show_and_ask_back(seeds: &Seeds) -> anyhow::Result<()> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    ensure!(
        is_terminal,
        "the words are shown on a terminal, and some are asked back; for a script: --print-words-without-asking"
    );
    say!(
        "Write these words down, in their order. Whoever has them has the money; without them nobody has it any more."
    );
    say!("They are not shown again.");
    for (name, words) in seeds.each() {
        say!("");
        say!("The words of {name}:");
        let phrase = words.phrase();
        let words: Vec<&str> = phrase.split(' ').collect();
        for (line, words) in words.chunks(LINE_WORDS).enumerate() {
            for (at, word) in words.iter().enumerate() {
                out::write(format_args!("{:>4} {word:<9}", line * LINE_WORDS + at + 1));
            }
            say!("");
        }
    }
    say!("");
    ask_back(seeds, random::number, &mut io::stdin().lock())
}

/// Asks for [`ASKED_BACK`] words, of which each seed has one at least.
fn ask_back(seeds: &Seeds, mut random: impl FnMut() -> u64, answers: &mut impl io::BufRead) -> anyhow::Result<()> {
    let phrases = seeds.each().map(|(name, words)| (name, words.phrase()));
    let mut asked: Vec<(usize, usize)> = Vec::new();
    while asked.len() < ASKED_BACK {
        let seed = asked.len() % phrases.len();
        let count = phrases[seed].1.split(' ').count();
        let at = usize::try_from(random() % u64::try_from(count)?)?;
        if asked.contains(&(seed, at)) {
            continue;
        }
        asked.push((seed, at));
        let (name, phrase) = &phrases[seed];
        out::write(format_args!("Word {} of {name}: ", at + 1));
        io::stdout().flush()?;
        let mut answer = Zeroizing::new(String::with_capacity(64));
        answers.read_line(&mut answer)?;
        if phrase.split(' ').nth(at) != Some(answer.trim().to_ascii_lowercase().as_str()) {
            bail!("word {} of {name} is another one; nothing was made", at + 1);
        }
    }
    Ok(())
}

impl Seeds {
    fn each(&self) -> [(&'static str, &Words); 2] {
        [("wallets", &self.wallets), ("sponsors", &self.sponsors)]
    }
}

fn verify_journal(dir: &Path) -> anyhow::Result<()> {
    let verified = verify(&dir.join(landfall_signer::JOURNAL))?;
    let (id, hash) = (&verified.signer, &verified.newest_hash);
    say!("the journal of signer {id} is whole: {} entries, the newest has the hash {hash}", verified.newest_seq);
    if verified.torn_bytes > 0 {
        let bytes = verified.torn_bytes;
        say!(
            "a last line of {bytes} bytes was torn by a crash; nothing was signed by it, and the next start cuts it off"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALLETS: &str = "test test test test test test test test test test test junk";
    const SPONSORS: &str = "legal winner thank year wave sausage worth useful legal winner thank yellow";

    /// Asks back the last word of wallets, the first of sponsors, and, the last being asked already, the one before it.
    fn asked(answers: &str) -> Result<(), String> {
        let seeds = Seeds { wallets: WALLETS.parse().unwrap(), sponsors: SPONSORS.parse().unwrap() };
        let mut numbers = [11, 0, 11, 10].into_iter();
        ask_back(&seeds, || numbers.next().unwrap(), &mut answers.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn three_words_are_asked_back_no_one_twice_and_no_answer_is_shown() {
        assert_eq!(asked("junk\n Legal \ntest\n"), Ok(()));
        let cases = [
            ("test\n", "word 12 of wallets is another one; nothing was made"),
            ("junk\nwinner\n", "word 1 of sponsors is another one; nothing was made"),
            ("junk\nlegal\n\n", "word 11 of wallets is another one; nothing was made"),
            ("", "word 12 of wallets is another one; nothing was made"),
        ];
        for (answers, refusal) in cases {
            assert_eq!(asked(answers), Err(refusal.to_owned()));
        }
    }
}
