//! Numbers that carry their unit in the file: durations, rates, sizes and shares.

#[cfg(feature = "serde")]
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

#[cfg(feature = "serde")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
#[cfg(feature = "serde")]
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a quantity was refused; the message says how it should have been written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {what}: write {how}")]
pub struct UnitError {
    given: String,
    what: &'static str,
    how: &'static str,
}

/// Splits `"1.5s"` into 1.5 and `"s"`; refuses what is not finite and not negative.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let unit_at = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.replace('_', "").parse().ok()?;
    number.is_finite().then_some((number, unit.trim()))
}

macro_rules! unit_type {
    ($name:ident, $inner:ty, $what:literal, $how:literal, $parse:ident, $bare:expr) => {
        impl FromStr for $name {
            type Err = UnitError;

            fn from_str(text: &str) -> Result<Self, UnitError> {
                $parse(text).map(Self).ok_or_else(|| UnitError {
                    given: text.to_owned(),
                    what: $what,
                    how: $how,
                })
            }
        }

        #[cfg(feature = "serde")]
        const _: () = {
            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Visitor;
                    impl de::Visitor<'_> for Visitor {
                        type Value = $name;

                        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                            write!(f, "a {}: write {}", $what, $how)
                        }

                        fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                            text.parse().map_err(E::custom)
                        }

                        fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                            self.visit_str(&number.to_string())
                        }

                        fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                            self.visit_str(&number.to_string())
                        }

                        fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                            self.visit_str(&number.to_string())
                        }
                    }
                    deserializer.deserialize_any(Visitor)
                }
            }

            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl JsonSchema for $name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({
                        "type": $bare,
                        "description": concat!("A ", $what, ": ", $how, ".")
                    })
                }
            }
        };

        impl Deref for $name {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                &self.0
            }
        }

        impl From<$inner> for $name {
            fn from(inner: $inner) -> Self {
                Self(inner)
            }
        }
    };
}

/// A length of time: `"250ms"`, `"1.5s"`, `"2m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Dur(pub Duration);

unit_type!(
    Dur,
    Duration,
    "duration",
    "a number with a unit, like \"250ms\", \"1.5s\", \"2m\" or \"1h\"",
    parse_duration,
    "string"
);

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_number(text)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "" if number == 0.0 => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

impl fmt::Display for Dur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug of `Duration` is the shortest exact form with a unit: 250ms, 1.5s.
        write!(f, "{:?}", self.0)
    }
}

/// Events per second: `"40/s"`, `"90/min"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Rate(pub f64);

unit_type!(
    Rate,
    f64,
    "rate",
    "a number per unit of time, like \"40/s\" or \"90/min\"",
    parse_rate,
    "string"
);

fn parse_rate(text: &str) -> Option<f64> {
    let (number, unit) = split_number(text)?;
    let per_second = match unit.replace(' ', "").as_str() {
        "/s" => number,
        "/m" | "/min" => number / 60.0,
        "/h" => number / 3600.0,
        "" if number == 0.0 => 0.0,
        _ => return None,
    };
    Some(per_second)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

/// A number of bytes: `"64KiB"`, `"10MB"`, `4096`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(pub u64);

unit_type!(
    Size,
    u64,
    "size",
    "a number of bytes, like 4096, \"64KiB\" or \"10MB\"",
    parse_size,
    ["string", "integer"]
);

fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let bytes = match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * bytes;
    // Beyond 2^53 an f64 no longer counts single bytes, and no limit is that large.
    (bytes.fract() == 0.0 && bytes < 9e15).then_some(bytes as u64)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match UNITS
            .iter()
            .find(|(bytes, _)| self.0 >= *bytes && self.0.is_multiple_of(*bytes))
        {
            Some((bytes, unit)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A part of a whole, from 0 to 1: `"80%"` or `0.8`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Share(pub f64);

unit_type!(
    Share,
    f64,
    "share",
    "a percentage or a number from 0 to 1, like \"80%\" or 0.8",
    parse_share,
    ["string", "number"]
);

fn parse_share(text: &str) -> Option<f64> {
    let (number, unit) = split_number(text)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return None,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dur(text: &str) -> Option<Duration> {
        text.parse::<Dur>().ok().map(|dur| dur.0)
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(dur("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(dur("1.5 s"), Some(Duration::from_millis(1500)));
        assert_eq!(dur("2m"), Some(Duration::from_secs(120)));
        assert_eq!(dur("0"), Some(Duration::ZERO));
        for bad in [
            "250",
            "-1s",
            "1e400s",
            "ms",
            "",
            "1 fortnight",
            "nan",
            "inf s",
        ] {
            assert_eq!(dur(bad), None, "{bad}");
        }
    }

    #[test]
    fn message_says_how_to_write_it() {
        let error = "250".parse::<Dur>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`250` is not a duration: write a number with a unit, like \"250ms\", \"1.5s\", \"2m\" or \"1h\""
        );
    }

    #[test]
    fn rates_are_per_second_inside() {
        assert_eq!("40/s".parse::<Rate>().unwrap().0, 40.0);
        assert_eq!("90 / min".parse::<Rate>().unwrap().0, 1.5);
        assert!("40".parse::<Rate>().is_err());
    }

    #[test]
    fn sizes_count_bytes() {
        assert_eq!("64KiB".parse::<Size>().unwrap().0, 65_536);
        assert_eq!("1.5MiB".parse::<Size>().unwrap().to_string(), "1536KiB");
        assert!("0.5".parse::<Size>().is_err());
        assert!("99999999TB".parse::<Size>().is_err());
    }

    #[test]
    fn shares_stay_between_nothing_and_all() {
        assert_eq!("80%".parse::<Share>().unwrap().0, 0.8);
        assert_eq!("0.25".parse::<Share>().unwrap().0, 0.25);
        assert!("101%".parse::<Share>().is_err());
        assert!("1.5".parse::<Share>().is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["250ms", "1.5s", "100s"] {
            assert_eq!(text.parse::<Dur>().unwrap().to_string(), text);
        }
        assert_eq!("40/s".parse::<Rate>().unwrap().to_string(), "40/s");
        assert_eq!("80%".parse::<Share>().unwrap().to_string(), "80%");
    }
}
