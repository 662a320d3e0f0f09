//! Turns for work that only a few requests may do at the same time, shared fairly: each key has a queue of its own, and
//! the queues take turns.
//!
//! Promises: a single request waits for at most one of each other key, however many of one key wait. A request that
//! gives up leaves its queue. A turn that was given to a request that is gone passes to the next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Gives turns.
#[derive(Debug)]
pub(super) struct Turns(Arc<Mutex<Queues>>);

#[derive(Debug)]
struct Queues {
    free: usize,
    /// By key, the one whose turn is next first. No queue is empty.
    waiting: VecDeque<(String, VecDeque<oneshot::Sender<Turn>>)>,
}

/// A turn; it ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn(Arc<Mutex<Queues>>);

impl Turns {
    /// At most `most` turns at the same time; at least 1.
    pub(super) fn of(most: usize) -> Self {
        Turns(Arc::new(Mutex::new(Queues { free: most, waiting: VecDeque::new() })))
    }

    /// Waits for a turn for this key.
    pub(super) async fn take(&self, key: &str) -> Turn {
        let queued = {
            let mut queues = lock(&self.0);
            if queues.free > 0 {
                queues.free -= 1;
                return Turn(Arc::clone(&self.0));
            }
            queues.queue(key)
        };
        match queued.await {
            Ok(turn) => turn,
            // A sender is dropped only when its receiver is gone.
            Err(_) => unreachable!("who waits is in a queue"),
        }
    }
}

impl Queues {
    fn queue(&mut self, key: &str) -> oneshot::Receiver<Turn> {
        let (sender, receiver) = oneshot::channel();
        match self.waiting.iter_mut().find(|(of, _)| of == key) {
            Some((_, queue)) => queue.push_back(sender),
            None => self.waiting.push_back((key.to_owned(), VecDeque::from([sender]))),
        }
        receiver
    }

    /// The request of the next key that has waited longest.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let (key, mut queue) = self.waiting.pop_front()?;
        let next = queue.pop_front();
        if !queue.is_empty() {
            self.waiting.push_back((key, queue));
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = lock(&self.0);
        loop {
            let Some(next) = queues.next() else {
                queues.free += 1;
                return;
            };
            if next.is_closed() {
                continue;
            }
            // Sent outside of the lock. A turn that cannot be sent is dropped, which passes it on.
            let turn = Turn(Arc::clone(&self.0));
            drop(queues);
            drop(next.send(turn));
            return;
        }
    }
}

fn lock(queues: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    // No panic leaves a change half done.
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn keys_take_turns_however_many_of_one_wait_and_who_is_gone_is_passed_over() {
        let (turns, came) = (Arc::new(Turns::of(1)), Arc::new(Mutex::new(Vec::new())));
        let first = turns.take("a").await;
        let (mut tasks, mut waiting) = (JoinSet::new(), Vec::new());
        for key in ["a", "a", "a", "b", "c", "b"] {
            let (turns, came) = (Arc::clone(&turns), Arc::clone(&came));
            waiting.push(tasks.spawn(async move {
                let _turn = turns.take(key).await;
                came.lock().unwrap().push(key);
            }));
            tokio::task::yield_now().await;
        }
        waiting[4].abort();
        tokio::task::yield_now().await;
        drop(first);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*came.lock().unwrap(), ["a", "b", "a", "b", "a"]);
        assert_eq!(lock(&turns.0).free, 1);
    }

    #[tokio::test]
    async fn a_turn_that_was_given_to_who_is_gone_goes_to_the_next() {
        let turns = Turns::of(1);
        let first = turns.take("a").await;
        let (mut gone, mut next) = (Box::pin(turns.take("a")), Box::pin(turns.take("b")));
        assert!(futures_util::poll!(&mut gone).is_pending() && futures_util::poll!(&mut next).is_pending());
        drop(first);
        // It was given the turn, and never polled again.
        drop(gone);
        drop(next.await);
        assert_eq!(lock(&turns.0).free, 1);
    }
}
