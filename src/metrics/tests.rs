use std::collections::BTreeSet;

use super::{labels::Label, *};
use crate::rejections::Refused;

#[test]
fn a_label_value_stands_in_its_place() {
    fn in_order<L: Label>() {
        for (place, value) in L::ALL.iter().enumerate() {
            assert_eq!(value.place(), place, "{value:?}");
        }
    }
    in_order::<Op>();
    in_order::<WriteOutcome>();
    in_order::<ReadOutcome>();
    in_order::<DecidedBy>();
    in_order::<BadInput>();
    in_order::<Where>();
    in_order::<Limited>();
    in_order::<Whose>();
    in_order::<Refusal>();
}

#[test]
fn counting_adds_no_series() {
    let metrics = Metrics::new(true, Arc::default());
    let series = |text: &str| -> BTreeSet<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    let before = series(&metrics.render(Format::Prometheus));
    for op in Op::ALL {
        for reason in BadInput::ALL {
            metrics.writes.malformed(*op, *reason, Refused::default(), Arc::default());
        }
    }
    metrics.locks.grants.inc();
    metrics.read_duration[ReadOutcome::Failed].observe(3.0);
    assert_eq!(series(&metrics.render(Format::Prometheus)), before);
    assert_eq!(series(&metrics.render(Format::OpenMetrics)), before);
}

#[test]
fn a_scraper_gets_the_form_that_it_asks_for() {
    let asked = |accept: &str| Format::accepted_by([accept]);
    assert_eq!(Format::accepted_by([]), Format::Prometheus);
    assert_eq!(asked("*/*"), Format::Prometheus);
    assert_eq!(asked("text/plain;version=0.0.4"), Format::Prometheus);
    // As Prometheus 2.42 says it.
    let prometheus = "application/openmetrics-text;version=1.0.0,\
                      application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(asked(prometheus), Format::OpenMetrics);
    assert_eq!(asked("text/plain, application/openmetrics-text; q=0"), Format::Prometheus);
}
