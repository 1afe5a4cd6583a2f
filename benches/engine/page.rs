//! `docs/benchmarks.md` and its pictures, written by a full run.

use std::{fmt::Write, fs, io, path::Path};

use super::{
    book::{Book, Spread},
    chart::{Chart, Scale, Series, thousands},
    goals,
    growth::{by_connections, by_keys},
    kept, machine, names,
    names::{FENCEPOST, PGBENCH, PLAIN},
    plan::{CONCURRENCY, Plan},
    run::Run,
};

const METHOD: &str = include_str!("method.md");

pub fn write(book: &Book, plan: &Plan) -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    fs::create_dir_all(docs.join("benchmarks"))?;
    for (name, chart) in charts(book, plan) {
        fs::write(docs.join("benchmarks").join(name), chart.svg())?;
    }
    fs::write(docs.join("benchmarks.md"), page(book, plan))
}

fn page(book: &Book, plan: &Plan) -> String {
    let mut page = String::from(
        "# Benchmarks\n\n<!-- Written by `make bench`. Change benches/engine/page.rs or method.md instead. -->\n\n\
         What Fencepost costs and gives back, side by side with its peers, durable, in one run on one \
         machine.\nThe ratios are what to look at: the numbers behind them are this machine's.\n\n\
         ## Fencepost against …\n\n| | median | lowest – highest | goal | |\n|---|---|---|---|---|\n",
    );
    for goal in goals::all(book) {
        let verdict = match (goal.is_kept(), &goal.caveat) {
            (_, Some(caveat)) => caveat,
            (Some(true), None) => "✓",
            (Some(false), None) => "✗",
            (None, None) => "not measured",
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {verdict} |",
            goal.what,
            goal.median(),
            goal.spread(),
            goal.bound()
        );
    }
    page += "\n![Writes a second against the number of clients](benchmarks/throughput.svg)\n\n\
             ![99th percentile of the latency against the number of clients](benchmarks/latency.svg)\n\n";
    page += &costs(book);
    page += &anatomy(book);
    page += &growth(book, plan);
    if let Some(locks) = kept::kept("locks.md") {
        page += "## Locks\n\nAcquire and release over HTTP, against the same lease, put and delete spoken \
                 straight to etcd by its own client. Each client has a lock of its own. Between two \
                 rounds etcd comes to rest and is compacted, so that nobody pays for what somebody else \
                 has left behind.\n\n";
        page += &locks;
        page += "\n*Without the claim* a lock is as unsafe as etcd's own: the former holder can still \
                 write until the new one does. The claim costs two commits in the store, one for the \
                 mark and one for what is remembered of etcd.\n\n";
    }
    page += METHOD;
    page += "\n## The machine\n\n| | |\n|---|---|\n";
    for (name, value) in machine::description() {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    page
}

/// Every scene's medians.
fn costs(book: &Book) -> String {
    let mut text = String::from(
        "## The numbers behind it\n\nMedians. The last columns say how much of a processor each was \
         busy with, of two hundred percent here,\nand how much of one an answer cost, all of them \
         together and in the proxy alone.\n",
    );
    for scene in names::SCENES.into_iter().filter(|scene| !names::GROWTH.contains(scene)) {
        let contenders: Vec<&str> = book.contenders(scene).collect();
        if contenders.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n**{scene}**\n\n| | per second | p50 | p99 | generator | proxy | database | CPU each | of it the proxy |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        );
        for name in contenders {
            let of = |what| book.of(scene, name, what).map_or(0.0, |spread| spread.median);
            let _ = writeln!(
                text,
                "| {name} | {} | {:.2} ms | {:.2} ms | {:.0} % | {:.0} % | {:.0} % | {:.0} µs | {:.0} µs |",
                thousands(of(|run| run.rate)),
                of(|run| run.p50_us / 1e3),
                of(|run| run.p99_us / 1e3),
                of(|run| run.cpu.generator * 100.0),
                of(|run| run.cpu.proxy * 100.0),
                of(|run| run.cpu.database * 100.0),
                of(Run::cpu_us),
                of(Run::proxy_us),
            );
        }
    }
    text
}

fn anatomy(book: &Book) -> String {
    let parts = [names::SPENT_HTTP, names::SPENT_QUEUE, names::SPENT_STATEMENT, names::SPENT_SYNC];
    let known: Vec<_> = parts.iter().filter_map(|part| Some((part, book.fact(part)?))).collect();
    if known.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## Where the time goes\n\nOf an accepted write among 64 clients, on average.\n\n| | ms |\n|---|---:|\n",
    );
    for (part, spent) in known {
        let _ = writeln!(text, "| {} | {:.2} |", part.trim_end_matches(", ms"), spent.median);
    }
    if let Some(together) = book.fact(names::TOGETHER) {
        let _ = writeln!(text, "\nA batch had {:.1} writes.", together.median);
    }
    text
}

fn growth(book: &Book, plan: &Plan) -> String {
    let row = |text: &mut String, name: &str, scene: &str, contender: &str| {
        let of = |what| book.of(scene, contender, what);
        let (Some(rate), Some(cpu), Some(proxy), Some(p99)) =
            (of(|run| run.rate), of(Run::cpu_us), of(Run::proxy_us), of(|run| run.p99_us / 1e3))
        else {
            return;
        };
        let _ = writeln!(
            text,
            "| {name} | {} | {:.2} ms | {:.0} µs | {:.0} µs |",
            thousands(rate.median),
            p99.median,
            cpu.median,
            proxy.median
        );
    };
    let head =
        "| | writes a second | p99 | CPU each | of it the proxy |\n|---|---:|---:|---:|---:|\n";
    let mut text = String::from(
        "\n## Growth\n\nA write should cost the same however many keys and connections there are. With the keys\n\
         it is Postgres's part that grows, whose index gets deeper and whose pages come from further away; the proxy's hardly does.\n\n\
         ![Processor time of a write against the number of keys](benchmarks/growth.svg)\n\n",
    ) + head;
    for keys in plan.sizes {
        for name in [FENCEPOST, PGBENCH] {
            let contender = by_keys(name, *keys);
            let shown = format!("{name}, {} keys", thousands_of(*keys));
            row(&mut text, &shown, names::BY_KEYS, &contender);
        }
    }
    text += "\n";
    text += head;
    for connections in plan.connections {
        let contender = by_connections(*connections);
        row(&mut text, &contender, names::BY_CONNECTIONS, &contender);
    }
    text += &two(book);
    text + "\n"
}

/// What a second fencepost on the same database brings, and why, as far as the numbers say.
fn two(book: &Book) -> String {
    /// Less than this is noise.
    const NOTICEABLE: f64 = 0.05;
    let ratio = |what| book.ratio(names::TWO, "two", "one", what);
    let (Some(rate), Some(cost)) = (ratio(|run| run.rate), ratio(Run::cpu_us)) else {
        return String::new();
    };
    let busy = book.of(names::TWO, "two", |run| run.cpu.all()).map_or(0.0, |busy| busy.median);
    #[expect(clippy::cast_precision_loss, reason = "a few processors")]
    let processors = machine::processors() as f64;
    let mut text = format!(
        "\nTwo fenceposts on one database, with half of 64 clients each, reach {:.2} x ({:.2} – {:.2}) what one \
         does with\nall of them. A write then costs {:.2} x the processor time, and {busy:.1} of {processors:.0} \
         processors are busy.\n",
        rate.median, rate.low, rate.high, cost.median
    );
    text += if rate.median > 1.0 + NOTICEABLE {
        "A second one adds speed as well as safety.\n"
    } else if cost.median > 1.0 + NOTICEABLE {
        "Their batches are smaller, so each write costs more, and here they share the processors with \
         Postgres and the\nclients: a second one adds safety rather than speed.\n"
    } else if busy > 0.9 * processors {
        "There was nothing left of the processors for it: a second one adds safety rather than speed.\n"
    } else {
        "Both wait for the same disk: a second one adds safety rather than speed.\n"
    };
    text
}

#[expect(clippy::cast_precision_loss, reason = "ten million at most")]
fn thousands_of(number: u64) -> String {
    thousands(number as f64)
}

fn charts(book: &Book, plan: &Plan) -> [(&'static str, Chart); 3] {
    let lines = |what: fn(&Run) -> f64| {
        [(FENCEPOST, "blue"), (PGBENCH, "amber"), (PLAIN, "green")].map(|(name, colour)| {
            let points = names::WRITES.iter().map(|scene| book.of(scene, name, what)).collect();
            Series { name, colour, points }
        })
    };
    let by_keys = |name: &'static str, colour| {
        let at = |keys: &u64| -> Option<Spread> {
            book.of(names::BY_KEYS, &by_keys(name, *keys), Run::cpu_us)
        };
        Series { name, colour, points: plan.sizes.iter().map(at).collect() }
    };
    let clients: Vec<String> = CONCURRENCY.iter().map(ToString::to_string).collect();
    [
        (
            "throughput.svg",
            Chart {
                title: "Durable, fenced writes a second",
                across: "clients",
                ticks: clients.clone(),
                scale: Scale::FromZero,
                series: lines(|run| run.rate).into(),
            },
        ),
        (
            "latency.svg",
            Chart {
                title: "99th percentile of the latency, milliseconds",
                across: "clients",
                ticks: clients,
                scale: Scale::Logarithmic,
                series: lines(|run| run.p99_us / 1e3).into(),
            },
        ),
        (
            "growth.svg",
            Chart {
                title: "Processor time of a write, all processes together, µs",
                across: "keys",
                ticks: plan.sizes.iter().map(|keys| thousands_of(*keys)).collect(),
                scale: Scale::FromZero,
                series: vec![by_keys(FENCEPOST, "blue"), by_keys(PGBENCH, "amber")],
            },
        ),
    ]
}
