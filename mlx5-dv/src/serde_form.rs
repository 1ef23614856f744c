//! serde's form of what two ends tell each other: its text in formats for people, its bytes in the others.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserializer, Serializer};

/// What has a text, and `N` bytes.
pub(crate) trait TextAndBytes<const N: usize>: Display + FromStr<Err: Display> {
    /// Its bytes.
    fn bytes(&self) -> [u8; N];
    /// The value of `bytes`.
    fn of_bytes(bytes: &[u8; N]) -> Result<Self, Self::Err>;
}

/// Writes `value`.
pub(crate) fn serialize<S: Serializer, const N: usize>(
    value: &impl TextAndBytes<N>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.collect_str(value)
    } else {
        serializer.serialize_bytes(&value.bytes())
    }
}

/// Reads a value.
pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: TextAndBytes<N>, const N: usize>(
    deserializer: D,
) -> Result<T, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_str(Form(PhantomData))
    } else {
        deserializer.deserialize_bytes(Form(PhantomData))
    }
}

struct Form<T, const N: usize>(PhantomData<T>);

impl<'de, T: TextAndBytes<N>, const N: usize> Visitor<'de> for Form<T, N> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text, or {N} bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
        let bytes = bytes.try_into().map_err(|_| E::invalid_length(bytes.len(), &self))?;
        T::of_bytes(bytes).map_err(E::custom)
    }

    // Some formats have bytes as a list of numbers.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        let mut bytes = [0; N];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = list.next_element()?.ok_or_else(|| A::Error::invalid_length(i, &self))?;
        }
        if list.next_element::<u8>()?.is_some() {
            return Err(A::Error::invalid_length(N + 1, &self));
        }
        self.visit_bytes(&bytes)
    }
}

/// Implements serde's traits for a type with [`TextAndBytes`].
macro_rules! text_and_bytes {
    ($type:ty, $of_bytes:expr) => {
        impl $crate::serde_form::TextAndBytes<{ <$type>::BYTES }> for $type {
            fn bytes(&self) -> [u8; <$type>::BYTES] {
                self.to_bytes()
            }

            fn of_bytes(bytes: &[u8; <$type>::BYTES]) -> Result<Self, Self::Err> {
                $of_bytes(bytes)
            }
        }

        /// The text in formats for people, such as JSON; the bytes in the others.
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::serde_form::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::serde_form::deserialize(deserializer)
            }
        }
    };
}

pub(crate) use text_and_bytes;
