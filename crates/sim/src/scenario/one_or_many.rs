//! A table, or a list of such tables.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{self, value::MapAccessDeserializer, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer};

/// What a file may write once (`[load]`) or several times (`[[load]]`).
#[derive(Debug, Clone, PartialEq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Default> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(vec![T::default()])
    }
}

impl<T> From<T> for OneOrMany<T> {
    fn from(one: T) -> Self {
        Self(vec![one])
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

struct Visitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or a list of tables")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMany::from)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMany)
    }
}
