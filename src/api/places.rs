//! Places for requests that are answered at the same time: a bounded number, of which one client has a quarter at most.
//!
//! Promises: a place is held until the client has read the answer, and given back when nobody holds it any more. A
//! client is refused at once when all places are taken, or its share. A large request counts as several. It knows
//! neither keys nor addresses: a client is a text.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// At least so many bytes of a body go to one place.
const BYTES_MIN: usize = 64 * 1024;

/// A bounded number of places.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    /// For one client.
    share: usize,
    held: Mutex<HashMap<String, usize>>,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    /// All places are taken.
    All,
    /// The client has its share already.
    Share,
}

/// A place. The request's handler may give it back before it has answered.
#[derive(Clone, Debug)]
pub(super) struct Place(Arc<Mutex<Option<Held>>>);

#[derive(Debug)]
struct Held {
    places: Arc<Places>,
    who: String,
    count: usize,
}

/// The body of an answer that keeps a place, and so does each of its parts until it is sent: the server takes a part
/// from here long before the client has read it.
struct Placed {
    body: Body,
    place: Place,
}

/// A part of an answer that is being sent.
struct PlacedBytes {
    bytes: Bytes,
    _place: Place,
}

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Places { most, share: (most / 4).max(1), held: Mutex::default() })
    }

    /// How many bytes of a body one place is for, if no body is larger than `body_bytes_max`: the largest takes no more
    /// than a share.
    pub(super) fn bytes_each(&self, body_bytes_max: usize) -> usize {
        body_bytes_max.div_ceil(self.share).max(BYTES_MIN)
    }

    /// A place for a client.
    ///
    /// # Errors
    /// See [`NoPlace`].
    pub(super) fn take(self: &Arc<Self>, who: &str) -> Result<Place, NoPlace> {
        self.count(who, 1)?;
        let held = Held { places: Arc::clone(self), who: who.to_owned(), count: 1 };
        Ok(Place(Arc::new(Mutex::new(Some(held)))))
    }

    fn count(&self, who: &str, more: usize) -> Result<(), NoPlace> {
        let mut held = self.held();
        let own = held.get(who).copied().unwrap_or_default();
        if held.values().sum::<usize>() + more > self.most {
            return Err(NoPlace::All);
        }
        if own + more > self.share {
            return Err(NoPlace::Share);
        }
        held.insert(who.to_owned(), own + more);
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Has it count as `count` places.
    ///
    /// # Errors
    /// When there are not enough places; it counts as before.
    pub(super) fn count_as(&self, count: usize) -> Result<(), NoPlace> {
        let mut place = self.held();
        let Some(held) = place.as_mut().filter(|held| held.count < count) else { return Ok(()) };
        held.places.count(&held.who, count - held.count)?;
        held.count = count;
        Ok(())
    }

    /// Gives the place back, so that another request may come in.
    pub(super) fn leave(&self) {
        self.held().take();
    }

    /// Keeps it until the answer is sent.
    pub(super) fn keep_for(self, response: Response) -> Response {
        response.map(|body| Body::new(Placed { body, place: self }))
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.places.held();
        let left = held.get(&self.who).map_or(0, |own| own.saturating_sub(self.count));
        if left == 0 {
            held.remove(&self.who);
        } else {
            held.insert(self.who.clone(), left);
        }
    }
}

impl HttpBody for Placed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Placed { body, place } = &mut *self;
        Pin::new(body)
            .poll_frame(context)
            .map_ok(|frame| frame.map_data(|bytes| Bytes::from_owner(PlacedBytes { bytes, _place: place.clone() })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl AsRef<[u8]> for PlacedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_asks_has_a_quarter_and_what_is_given_back_is_taken_again() {
        let places = Places::new(8);
        let take = |who: &str| places.take(who);
        let mut held = vec![take("a").unwrap(), take("a").unwrap()];
        assert_eq!(take("a").unwrap_err(), NoPlace::Share);
        held.extend(["b", "b", "c", "c", "d", "d"].map(|who| take(who).unwrap()));
        assert_eq!((take("a").unwrap_err(), take("e").unwrap_err()), (NoPlace::All, NoPlace::All));
        held[0].leave();
        let other = held[0].clone();
        other.leave();
        let again = take("e").unwrap();
        assert_eq!(take("e").unwrap_err(), NoPlace::All);
        drop((held, again));
        assert!(places.held().is_empty(), "nobody is remembered who holds nothing");
    }

    #[test]
    fn a_place_that_counts_as_several_gives_back_as_many() {
        let places = Places::new(16);
        let place = places.take("a").unwrap();
        place.count_as(3).unwrap();
        place.count_as(2).unwrap();
        assert_eq!((place.count_as(5), places.held()["a"]), (Err(NoPlace::Share), 3));
        let second = places.take("a").unwrap();
        assert_eq!((second.count_as(2), places.take("a").unwrap_err()), (Err(NoPlace::Share), NoPlace::Share));
        drop(place);
        assert_eq!(places.held()["a"], 1);
        second.count_as(4).unwrap();
        assert_eq!([1, 4, 512].map(|most| Places::new(most).bytes_each(1 << 20)), [1 << 20, 1 << 20, 64 << 10]);
    }
}
