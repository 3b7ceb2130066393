//! What is told to the `metrics` facade.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use redislock_testkit::cmd;
use support::*;

/// Keeps the sum of what each figure was told, and how often a histogram was told something.
#[derive(Clone, Default)]
struct Figures(Arc<Mutex<BTreeMap<String, f64>>>);

impl Figures {
    fn of(&self, figure: &str) -> f64 {
        self.0.lock().unwrap().get(figure).copied().unwrap_or(0.0)
    }

    fn named(&self, key: &Key) -> Arc<Figure> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        Arc::new(Figure { name, figures: self.clone() })
    }
}

struct Figure {
    name: String,
    figures: Figures,
}

impl Figure {
    fn add(&self, change: f64) {
        *self.figures.0.lock().unwrap().entry(self.name.clone()).or_default() += change;
    }

    fn set(&self, value: f64) {
        self.figures.0.lock().unwrap().insert(self.name.clone(), value);
    }
}

impl CounterFn for Figure {
    fn increment(&self, by: u64) {
        self.add(by as f64);
    }

    fn absolute(&self, value: u64) {
        self.set(value as f64);
    }
}

impl GaugeFn for Figure {
    fn increment(&self, by: f64) {
        self.add(by);
    }

    fn decrement(&self, by: f64) {
        self.add(-by);
    }

    fn set(&self, value: f64) {
        Figure::set(self, value);
    }
}

impl HistogramFn for Figure {
    fn record(&self, value: f64) {
        assert!(value >= 0.0 && value.is_finite(), "{}: {value}", self.name);
        self.add(1.0);
    }
}

impl Recorder for Figures {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.named(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.named(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.named(key))
    }
}

/// One test, since the recorder is that of the whole process.
#[tokio::test(flavor = "multi_thread")]
async fn every_figure_of_the_front_page_is_told() {
    let figures = Figures::default();
    assert!(metrics::set_global_recorder(figures.clone()).is_ok(), "the only recorder");
    let server = server();
    let locker = builder([&server]).max_waits(1).build().unwrap();

    let guard = locker.lock("k").ttl(ms(600)).acquire().await.unwrap();
    assert_eq!(figures.of("redislock_held"), 1.0);
    assert!(locker.lock("k").try_acquire().await.is_err());
    assert!(locker.lock("k").acquire_within(ms(30)).await.is_err());
    eventually(ms(5000), "the watchdog renews", || {
        figures.of("redislock_renewals_total outcome=renewed") > 0.0
    })
    .await;
    // Two want to wait, and one may.
    let waits = [(); 2].map(|()| {
        let request = locker.lock("k");
        tokio::spawn(async move { request.acquire().await.unwrap().release().await.unwrap() })
    });
    eventually(ms(5000), "one is held back", || figures.of("redislock_waits_held_back_total") > 0.0).await;
    guard.release().await.unwrap();
    for wait in waits {
        wait.await.unwrap();
    }
    let lost = locker.lock("lost").ttl(ms(600)).acquire().await.unwrap();
    cmd!(server.connect(), "DEL", "lost");
    lost.lost().await;
    drop(lost);
    locker.drain().await;

    for (figure, told) in [
        ("redislock_acquisitions_total outcome=granted", 4.0),
        ("redislock_acquisitions_total outcome=refused", 1.0),
        ("redislock_acquisitions_total outcome=timed_out", 1.0),
        ("redislock_acquire_seconds outcome=granted", 4.0),
        ("redislock_acquire_seconds outcome=refused", 1.0),
        ("redislock_acquire_seconds outcome=timed_out", 1.0),
        ("redislock_held", 0.0),
        ("redislock_held_seconds", 4.0),
        ("redislock_renewals_total outcome=lost", 1.0),
        ("redislock_lost_total reason=taken", 1.0),
        ("redislock_releases_total outcome=released", 4.0),
    ] {
        eventually(ms(5000), &format!("{figure} {told}"), || figures.of(figure) == told).await;
    }
}
