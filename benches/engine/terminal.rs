//! The tables on the terminal.

use comfy_table::{Cell, CellAlignment, Color, Table, presets::NOTHING};

use super::{book::Book, goals, names};

pub fn print(book: &Book) {
    println!("{}", costs(book));
    println!("Fencepost against …");
    println!("{}", verdicts(book));
}

fn verdicts(book: &Book) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["", "median", "lowest – highest", "goal", ""]);
    for goal in goals::all(book) {
        let verdict = match (goal.is_kept(), &goal.caveat) {
            (_, Some(caveat)) => Cell::new(caveat).fg(Color::Yellow),
            (Some(true), None) => Cell::new("✓").fg(Color::Green),
            (Some(false), None) => Cell::new("✗").fg(Color::Red),
            (None, None) => Cell::new("–"),
        };
        table.add_row([
            Cell::new(goal.what),
            right(goal.median()),
            right(goal.spread()),
            right(goal.bound()),
            verdict,
        ]);
    }
    table
}

/// Rates, latencies, and who was busy with it.
fn costs(book: &Book) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "",
        "per second",
        "p50 ms",
        "p99 ms",
        "generator",
        "proxy",
        "database",
        "CPU µs each",
    ]);
    for scene in names::SCENES {
        let contenders: Vec<&str> = book.contenders(scene).collect();
        if contenders.is_empty() {
            continue;
        }
        table.add_row([Cell::new(scene).fg(Color::Cyan)]);
        for name in contenders {
            let of = |what| book.of(scene, name, what).map_or(0.0, |spread| spread.median);
            let percent = |share: f64| right(format!("{:.0} %", 100.0 * share));
            table.add_row([
                Cell::new(format!("  {name}")),
                right(format!("{:.0}", of(|run| run.rate))),
                right(format!("{:.2}", of(|run| run.p50_us / 1e3))),
                right(format!("{:.2}", of(|run| run.p99_us / 1e3))),
                percent(of(|run| run.cpu.generator)),
                percent(of(|run| run.cpu.proxy)),
                percent(of(|run| run.cpu.database)),
                right(format!("{:.0}", of(super::run::Run::cpu_us))),
            ]);
        }
    }
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
