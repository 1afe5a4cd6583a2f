//! What was measured, by scene and contender; medians, and ratios with their spread.

use serde::{Deserialize, Serialize};

use super::run::Run;

/// Runs of all contenders in all scenes. The rounds of a scene are side by side, so the ratio of
/// two contenders is taken round by round.
#[derive(Default, Serialize, Deserialize)]
pub struct Book {
    pages: Vec<Page>,
    facts: Vec<Fact>,
}

#[derive(Serialize, Deserialize)]
struct Page {
    scene: String,
    contender: String,
    runs: Vec<Run>,
}

/// A number that is no run: memory, the time of a start.
#[derive(Serialize, Deserialize)]
struct Fact {
    name: String,
    values: Vec<f64>,
}

/// A median between the lowest and the highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Self { low, median: values[values.len() / 2], high })
    }
}

impl Book {
    pub fn add(&mut self, scene: &str, contender: &str, run: Run) {
        let mut pages = self.pages.iter_mut();
        match pages.find(|page| page.scene == scene && page.contender == contender) {
            Some(page) => page.runs.push(run),
            None => self.pages.push(Page {
                scene: scene.into(),
                contender: contender.into(),
                runs: vec![run],
            }),
        }
    }

    pub fn note(&mut self, name: &str, values: Vec<f64>) {
        self.facts.retain(|fact| fact.name != name);
        self.facts.push(Fact { name: name.into(), values });
    }

    pub fn fact(&self, name: &str) -> Option<Spread> {
        let fact = self.facts.iter().find(|fact| fact.name == name)?;
        Spread::of(fact.values.clone())
    }

    pub fn runs(&self, scene: &str, contender: &str) -> &[Run] {
        let mut pages = self.pages.iter();
        let page = pages.find(|page| page.scene == scene && page.contender == contender);
        page.map_or(&[], |page| &page.runs)
    }

    pub fn contenders(&self, scene: &str) -> impl Iterator<Item = &str> {
        let pages = self.pages.iter().filter(move |page| page.scene == scene);
        pages.map(|page| &*page.contender)
    }

    pub fn of(&self, scene: &str, contender: &str, what: fn(&Run) -> f64) -> Option<Spread> {
        Spread::of(self.runs(scene, contender).iter().map(what).collect())
    }

    /// Round by round, `ours` over `theirs`.
    pub fn ratio(
        &self,
        scene: &str,
        ours: &str,
        theirs: &str,
        what: fn(&Run) -> f64,
    ) -> Option<Spread> {
        let pairs = self.runs(scene, ours).iter().zip(self.runs(scene, theirs));
        Spread::of(pairs.map(|(ours, theirs)| what(ours) / what(theirs)).collect())
    }

    /// Takes in what another run has kept; what is already here stays.
    pub fn merge(&mut self, other: Self) {
        for page in other.pages {
            if self.runs(&page.scene, &page.contender).is_empty() {
                self.pages.push(page);
            }
        }
        for fact in other.facts {
            if self.fact(&fact.name).is_none() {
                self.facts.push(fact);
            }
        }
    }
}
