//! Medians and their spread, as a table of ratios.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

#[derive(Clone, Copy)]
pub struct Cell {
    /// Locks taken and given back, a second.
    pub rate: f64,
    /// Of one acquire and release.
    pub median: Duration,
}

#[derive(Default)]
pub struct Report {
    cells: BTreeMap<(usize, String), Vec<Cell>>,
}

impl Report {
    pub fn add(&mut self, name: &str, clients: usize, cell: Cell) {
        self.cells.entry((clients, name.to_owned())).or_default().push(cell);
    }

    /// Ratios are to the first name, round by round.
    pub fn table<'a>(
        &self,
        clients: &[usize],
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> String {
        let first = names.clone().next().unwrap_or_default();
        let mut table = String::from(
            "| clients | | locks a second | lowest – highest | against etcd alone | p50 |\n\
             |---|---|---|---|---|---|\n",
        );
        for &clients in clients {
            let base = self.rates(clients, first);
            for name in names.clone() {
                let rates = self.rates(clients, name);
                let ratios = rates.iter().zip(&base).map(|(rate, base)| rate / base).collect();
                let (low, high) = (lowest(&rates), highest(&rates));
                let latency = median(self.latencies(clients, name)) * 1e3;
                let _ = writeln!(
                    table,
                    "| {clients} | {name} | {:.0} | {low:.0} – {high:.0} | {:.2} x | {latency:.2} ms |",
                    median(rates),
                    median(ratios),
                );
            }
        }
        table
    }

    fn rates(&self, clients: usize, name: &str) -> Vec<f64> {
        self.of(clients, name).iter().map(|cell| cell.rate).collect()
    }

    fn latencies(&self, clients: usize, name: &str) -> Vec<f64> {
        self.of(clients, name).iter().map(|cell| cell.median.as_secs_f64()).collect()
    }

    fn of(&self, clients: usize, name: &str) -> &[Cell] {
        self.cells.get(&(clients, name.to_owned())).map_or(&[], Vec::as_slice)
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn lowest(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn highest(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(0.0, f64::max)
}
