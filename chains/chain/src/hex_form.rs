//! The form in which addresses, assets and ids of transactions go from one process to another: their bytes, in hexadecimal.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Address, AssetId, TxId};

macro_rules! in_hex {
    ($($type:ty, $bytes:expr;)*) => { $(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let bytes: fn(&$type) -> String = $bytes;
                serializer.serialize_str(&bytes(self))
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                let bytes = hex::decode(text.as_bytes()).map_err(D::Error::custom)?;
                <$type>::from_bytes(&bytes).map_err(D::Error::custom)
            }
        }
    )* };
}

in_hex! {
    Address, |address| hex::encode(address.as_bytes());
    AssetId, |asset| hex::encode(asset.to_bytes());
    TxId, |id| hex::encode(id.as_bytes());
}
