//! What the shop sells, and who bought it so far: generated, the same on every machine.
//!
//! Twelve kinds of goods from ten ports. People choose a first thing by its popularity (Zipf's
//! law), and others that go with it: more from the same port, or of the same department. That is
//! what recommendations can find.

use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::money::Cents;

/// A part of the shop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Department {
    pub(crate) slug: &'static str,
    pub(crate) name: &'static str,
}

pub(crate) const DEPARTMENTS: [Department; 4] = [
    Department {
        slug: "deck",
        name: "Deck",
    },
    Department {
        slug: "galley",
        name: "Galley",
    },
    Department {
        slug: "chartroom",
        name: "Chart room",
    },
    Department {
        slug: "cabin",
        name: "Cabin",
    },
];

/// Something that every port makes in its own way.
struct Kind {
    noun: &'static str,
    picture: &'static str,
    department: &'static str,
    price: i64,
    text: &'static str,
}

const KINDS: [Kind; 12] = [
    Kind {
        noun: "lantern",
        picture: "lantern",
        department: "deck",
        price: 6900,
        text: "Burns for eleven hours on one filling, and stays lit in a gale.",
    },
    Kind {
        noun: "mooring line",
        picture: "rope",
        department: "deck",
        price: 4200,
        text: "Twelve metres of three-strand line, with an eye spliced by hand at one end.",
    },
    Kind {
        noun: "ship's bell",
        picture: "bell",
        department: "deck",
        price: 12900,
        text: "Cast in one piece. Heard across the harbour, and then for some time.",
    },
    Kind {
        noun: "canvas bag",
        picture: "bag",
        department: "deck",
        price: 5400,
        text: "Takes a sleeping bag, two jerseys and a loaf, and keeps them dry.",
    },
    Kind {
        noun: "enamel mug",
        picture: "mug",
        department: "galley",
        price: 1450,
        text: "Holds a third of a litre, and bounces.",
    },
    Kind {
        noun: "kettle",
        picture: "kettle",
        department: "galley",
        price: 4800,
        text: "A wide base, so that it stays where it was put when the boat does not.",
    },
    Kind {
        noun: "compass",
        picture: "compass",
        department: "chartroom",
        price: 8800,
        text: "A dry card on a sapphire bearing, in a box with a lid.",
    },
    Kind {
        noun: "harbour chart",
        picture: "chart",
        department: "chartroom",
        price: 2300,
        text: "Soundings in metres, printed on paper that can be folded wet.",
    },
    Kind {
        noun: "logbook",
        picture: "book",
        department: "chartroom",
        price: 1900,
        text: "Two hundred ruled pages, sewn, with a column for the weather.",
    },
    Kind {
        noun: "oilskin",
        picture: "coat",
        department: "cabin",
        price: 15800,
        text: "Heavy cotton with three coats of linseed oil. Softer every year.",
    },
    Kind {
        noun: "wool cap",
        picture: "cap",
        department: "cabin",
        price: 2900,
        text: "Knitted tight enough for spray; covers the ears.",
    },
    Kind {
        noun: "blanket",
        picture: "blanket",
        department: "cabin",
        price: 9700,
        text: "Two kilograms of new wool. Warm also when it is damp.",
    },
];

/// Where things come from.
struct Port {
    name: &'static str,
    text: &'static str,
    /// Price relative to the kind's, in percent.
    price: i64,
}

const PORTS: [Port; 10] = [
    Port {
        name: "Skagen",
        text: "From the yellow houses at the tip of Denmark.",
        price: 110,
    },
    Port {
        name: "Falmouth",
        text: "Made a street away from the Cornish quay.",
        price: 105,
    },
    Port {
        name: "Bergen",
        text: "Made for a place where it rains two days in three.",
        price: 125,
    },
    Port {
        name: "Saint-Malo",
        text: "In the style of the privateers' town.",
        price: 115,
    },
    Port {
        name: "Galway",
        text: "Tried on the bay before it is sold.",
        price: 95,
    },
    Port {
        name: "Lerwick",
        text: "Sent by the night boat from Shetland.",
        price: 120,
    },
    Port {
        name: "Porto",
        text: "Finished by hand above the Douro.",
        price: 85,
    },
    Port {
        name: "Gdańsk",
        text: "From a workshop behind the old crane.",
        price: 80,
    },
    Port {
        name: "Turku",
        text: "Plain, as everything from the archipelago.",
        price: 100,
    },
    Port {
        name: "Whitby",
        text: "From the steps below the abbey.",
        price: 90,
    },
];

/// A product as it is put into the database.
#[derive(Debug)]
pub(crate) struct NewProduct {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) department: &'static str,
    pub(crate) text: String,
    pub(crate) price: Cents,
    pub(crate) picture: &'static str,
    pub(crate) port: usize,
}

/// All products, in the order in which the shop shows them.
pub(crate) fn products() -> impl Iterator<Item = NewProduct> {
    let pairs = (0..PORTS.len()).flat_map(|port| (0..KINDS.len()).map(move |kind| (kind, port)));
    pairs.map(|(kind, port)| {
        let (
            Kind {
                noun,
                picture,
                department,
                price,
                text,
            },
            from,
        ) = (&KINDS[kind], &PORTS[port]);
        NewProduct {
            id: product_id(kind, port),
            name: format!("{} {noun}", from.name),
            department,
            text: format!("{text} {}", from.text),
            // Prices end in 50 or 00 cents.
            price: Cents(price * from.price / 100 / 50 * 50),
            picture,
            port,
        }
    })
}

fn product_id(kind: usize, port: usize) -> i64 {
    (port * KINDS.len() + kind + 1) as i64
}

/// Everything that was ever bought, order by order; no product twice in one.
pub(crate) fn history(orders: u32) -> impl Iterator<Item = Vec<i64>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let popularity = Popularity::new(KINDS.len() * PORTS.len());
    (0..orders).map(move |_| order(&mut random, &popularity))
}

/// One to seven things, four on average.
fn order(random: &mut Xoshiro256PlusPlus, popularity: &Popularity) -> Vec<i64> {
    let first = popularity.choose(random.random());
    let (kind, port) = (first % KINDS.len(), first / KINDS.len());
    let mut ids = vec![product_id(kind, port)];
    for _ in 0..random.random_range(0..7) {
        let other = match random.random_range(0..10) {
            0..3 => product_id(random.random_range(0..KINDS.len()), port),
            3..8 => product_id(
                same_department(kind, random),
                random.random_range(0..PORTS.len()),
            ),
            _ => popularity.choose(random.random()) as i64 + 1,
        };
        if !ids.contains(&other) {
            ids.push(other);
        }
    }
    ids
}

fn same_department(kind: usize, random: &mut Xoshiro256PlusPlus) -> usize {
    let department = KINDS[kind].department;
    let same = |kind: &usize| KINDS[*kind].department == department;
    let count = (0..KINDS.len()).filter(same).count();
    let chosen = random.random_range(0..count);
    (0..KINDS.len()).filter(same).nth(chosen).unwrap_or(kind)
}

/// Zipf's law: the n-th most popular of some things is chosen with a weight of 1/n.
struct Popularity {
    cumulative: Vec<f64>,
}

impl Popularity {
    fn new(things: usize) -> Self {
        let mut sum = 0.0;
        let cumulative = (0..things)
            // Ranks are spread over kinds and ports: 7 has no factor in common with 120.
            .map(|thing| {
                sum += 1.0 / ((thing * 7 + 3) % things + 1) as f64;
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// The thing that belongs to a number from 0 to 1.
    fn choose(&self, uniform: f64) -> usize {
        let sum = self.cumulative.last().copied().unwrap_or_default();
        let at = self
            .cumulative
            .partition_point(|&upto| upto < uniform * sum);
        at.min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn products_differ_and_belong_somewhere() {
        let products: Vec<_> = products().collect();
        assert_eq!(products.len(), 120);
        let ids: HashSet<_> = products.iter().map(|product| product.id).collect();
        let names: HashSet<_> = products.iter().map(|product| &product.name).collect();
        assert_eq!((ids.len(), names.len()), (120, 120));
        for product in &products {
            let known = |department: &Department| department.slug == product.department;
            assert!(DEPARTMENTS.iter().any(known), "{product:?}");
            assert!(product.price > Cents(0), "{product:?}");
        }
    }

    #[test]
    fn orders_are_of_products_and_the_same_every_time() {
        let orders: Vec<_> = history(1000).collect();
        assert_eq!(orders, history(1000).collect::<Vec<_>>());
        let lines: usize = orders.iter().map(Vec::len).sum();
        assert!((3000..4500).contains(&lines), "{lines}");
        for order in orders {
            let distinct: HashSet<_> = order.iter().collect();
            assert_eq!(distinct.len(), order.len());
            assert!(order.iter().all(|id| (1..=120).contains(id)), "{order:?}");
        }
    }
}
