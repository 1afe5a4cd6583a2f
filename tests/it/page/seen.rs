//! What somebody sees who opens the page in a real browser, and what they can do there.

use serde_json::json;

use crate::harness::{
    browser::{Browser, DOWN, ENTER, ESCAPE, TAB},
    fencepost::Fencepost,
    free_port,
    http::{Client, answer},
    store::TestStore,
};

const LIVE: &str = "document.getElementById('link').dataset.state === 'live'";
const ROWS: &str = "document.querySelectorAll('#rows li').length";
const OPEN: &str = "document.getElementById('explanation').open";

async fn looking_at(server: &Fencepost) -> Browser {
    let browser = Browser::start().await;
    browser.open(&format!("http://{}/", server.admin)).await;
    browser.until(LIVE).await;
    browser
}

/// Nothing was violated, nothing failed, and nobody else was asked for anything.
async fn leave(browser: Browser, server: &Fencepost) {
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    let requests = browser.requests().await;
    assert!(requests.iter().any(|url| url.ends_with("/v1/rejections")), "{requests:?}");
    for url in requests {
        let own = url.starts_with(&format!("http://{}/", server.admin));
        assert!(own || url.starts_with("data:"), "{url}");
    }
    browser.close().await;
}

async fn put(client: &Client, key: &str, token: i64, name: &str) -> u16 {
    answer(client.put(key, token, "v").header("X-Fencing-Client", name)).await.status
}

/// A holder with token 34 has overtaken one with token 33.
async fn fence_off(client: &Client, key: &str, name: &str) {
    assert!(matches!(put(client, key, 34, "billing-8").await, 200 | 201));
    assert_eq!(put(client, key, 33, name).await, 409);
}

#[tokio::test]
async fn a_rejection_appears_as_it_happens() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let browser = looking_at(&server).await;
    browser.until("document.getElementById('verdict').dataset.level === 'ok'").await;
    assert_eq!(browser.run(&format!("return {ROWS}")).await, 0);

    fence_off(&server.client(), "orders/42", "billing-7").await;
    browser.until(&format!("{ROWS} === 1")).await;
    let row = browser.run("return document.querySelector('.row').textContent").await;
    for part in ["stale-token", "orders/42", "33 < 34", "1 behind", "billing-7"] {
        assert!(row.as_str().unwrap().contains(part), "{row}");
    }
    browser.until("document.getElementById('verdict').dataset.level === 'warn'").await;
    let verdict = "document.getElementById('verdict-line').textContent";
    browser.until(&format!("{verdict}.startsWith('1 write refused')")).await;
    browser.until("document.querySelector('#top .key')?.textContent === 'orders/42'").await;
    browser.until("document.getElementById('sum-rejected').textContent === '1'").await;
    leave(browser, &server).await;
}

#[tokio::test]
async fn what_was_refused_before_is_there_the_newest_first() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    for key in ["first", "second", "third"] {
        fence_off(&server.client(), key, "late").await;
    }
    let browser = looking_at(&server).await;
    browser.until(&format!("{ROWS} === 3")).await;
    let keys = "return [...document.querySelectorAll('.row .key')].map((key) => key.textContent)";
    assert_eq!(browser.run(keys).await, json!(["third", "second", "first"]));
    leave(browser, &server).await;
}

#[tokio::test]
async fn a_hostile_key_is_only_text() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let browser = looking_at(&server).await;
    let image = "%3Cimg%20src=x%20onerror=%22window.hacked=1%22%3E";
    let turned = "a%E2%80%AEb%0Ac";
    let long = "x".repeat(1024);
    for key in [image, turned, &long] {
        fence_off(&server.client(), key, "<script>window.hacked=1</script>").await;
    }
    browser.until(&format!("{ROWS} === 3")).await;
    let keys = "return [...document.querySelectorAll('.row .key')].map((key) => key.textContent)";
    let shown = browser.run(keys).await;
    let expected = json!([long, "a\\u202eb\\u000ac", "<img src=x onerror=\"window.hacked=1\">"]);
    assert_eq!(shown, expected);
    browser.click("#rows li:last-child button").await;
    browser.until(OPEN).await;
    browser.until("document.querySelector('#top .key')").await;
    assert_eq!(browser.run("return document.querySelectorAll('img, .row script').length").await, 0);
    assert_eq!(browser.run("return window.hacked ?? null").await, json!(null));
    let body = browser.run("return document.getElementById('explanation').textContent").await;
    assert!(body.as_str().unwrap().contains("<script>window.hacked=1</script>"), "{body}");
    leave(browser, &server).await;
}

#[tokio::test]
async fn they_can_be_filtered_by_key_and_reason() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    fence_off(&client, "orders/42", "a").await;
    fence_off(&client, "stock/7", "a").await;
    let tokenless = client.request(reqwest::Method::PUT, "/v1/resources/orders/43").body("v");
    assert_eq!(answer(tokenless).await.status, 428);
    let browser = looking_at(&server).await;
    browser.until(&format!("{ROWS} === 3")).await;

    browser.click("#filter-key").await;
    browser.press("Orders").await;
    browser.until(&format!("{ROWS} === 2")).await;
    browser
        .run(
            "const choice = document.getElementById('filter-reason'); \
             choice.value = 'token-required'; choice.dispatchEvent(new Event('change'))",
        )
        .await;
    browser.until(&format!("{ROWS} === 1")).await;
    let key = browser.run("return document.querySelector('.row .key').textContent").await;
    assert_eq!(key, "orders/43");
    // What comes meanwhile is filtered, too.
    fence_off(&client, "orders/44", "a").await;
    browser.until("document.getElementById('sum-rejected').textContent === '4'").await;
    assert_eq!(browser.run(&format!("return {ROWS}")).await, 1);
    browser.click("#filter-key").await;
    browser.press("nothing like that").await;
    browser.until(&format!("{ROWS} === 0 && !document.getElementById('rows-empty').hidden")).await;
    leave(browser, &server).await;
}

#[tokio::test]
async fn a_keyboard_is_enough_to_have_one_explained() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let owned = |owner: &str| json!({"owner": owner, "ttl_ms": 60_000});
    let first = answer(client.acquire("job", &owned("worker-1"))).await.json()["token"].clone();
    let first = first.as_i64().unwrap();
    assert_eq!(answer(client.release("job", first)).await.status, 204);
    assert_eq!(answer(client.acquire("job", &owned("worker-2"))).await.status, 201);
    for _ in 0..2 {
        assert_eq!(put(&client, "job", first, "worker-1").await, 409);
    }
    let browser = looking_at(&server).await;
    browser.until(&format!("{ROWS} === 2")).await;
    let in_rows = "document.activeElement.classList.contains('row')";
    for _ in 0..20 {
        if browser.run(&format!("return {in_rows}")).await == true {
            break;
        }
        browser.press(TAB).await;
    }
    browser.until(in_rows).await;
    let outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle").await;
    assert_eq!(outline, "solid", "the focus can be seen");
    browser.press(DOWN).await;
    browser
        .until("document.activeElement.closest('li') === document.querySelectorAll('#rows li')[1]")
        .await;
    browser.press(ENTER).await;
    browser.until(OPEN).await;
    let text = browser.run("return document.getElementById('explanation').innerText").await;
    for part in ["lost its lock", "worker-1", "overtaken by “worker-2”", "acquire the lock again"]
    {
        assert!(text.as_str().unwrap().contains(part), "{part}: {text}");
    }
    browser.press(ESCAPE).await;
    browser.until(&format!("!{OPEN} && {in_rows}")).await;
    leave(browser, &server).await;
}

#[tokio::test]
async fn it_has_a_dark_side_and_fits_a_phone() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let name = "a/very/long/name/of/a/lock/that/goes/on/and/on/and/on/and/on/and/on";
    let held = answer(client.acquire(name, &json!({"owner": "o".repeat(200)}))).await;
    assert_eq!(held.status, 201);
    let token = held.json()["token"].as_i64().unwrap();
    assert_eq!(put(&client, &"k".repeat(1024), token + 1, &"c".repeat(256)).await, 422);
    let browser = looking_at(&server).await;
    browser.until(&format!("{ROWS} === 1")).await;
    browser.until("document.querySelectorAll('#locks li').length === 1").await;
    let ground = "return getComputedStyle(document.body).backgroundColor";
    browser.prefer("light").await;
    let light = browser.run(ground).await;
    browser.prefer("dark").await;
    let dark = browser.run(ground).await;
    assert_ne!(light, dark);
    for width in [360, 768, 1280] {
        browser.size(width, 740, 1.0).await;
        browser.until(&format!("innerWidth === {width}")).await;
        let wide = browser.run("return document.documentElement.scrollWidth").await;
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} on {width}");
    }
    browser.size(360, 740, 1.0).await;
    browser.click("#rows button").await;
    browser.until(OPEN).await;
    let over =
        "const it = document.getElementById('explanation'); return it.scrollWidth - it.clientWidth";
    assert_eq!(browser.run(over).await, 0);
    leave(browser, &server).await;
}

#[tokio::test]
async fn a_flood_does_not_drown_it() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let browser = looking_at(&server).await;
    let client = server.client();
    assert_eq!(put(&client, "hot", 34, "new").await, 201);
    let floods = (0..8).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..500 {
                assert_eq!(put(&client, "hot", 33, "zombie").await, 409);
            }
        })
    });
    for flood in floods.collect::<Vec<_>>() {
        flood.await.unwrap();
    }
    assert_eq!(put(&client, "last", 34, "new").await, 201);
    assert_eq!(put(&client, "last", 33, "zombie").await, 409);
    browser.until("document.querySelector('.row .key')?.textContent === 'last'").await;
    browser.until("document.getElementById('sum-rejected').textContent === '4,001'").await;
    let rows = browser.run(&format!("return {ROWS}")).await;
    assert!(rows.as_u64().unwrap() <= 200, "{rows}");
    leave(browser, &server).await;
}

#[tokio::test]
async fn it_says_that_the_server_is_gone_and_goes_on_when_it_is_back() {
    let store = TestStore::sqlite();
    let (port, admin) = (free_port(), free_port());
    let [listen, admin] = [port, admin].map(|port| format!("127.0.0.1:{port}"));
    let flags = ["--listen", &listen, "--admin-listen", &admin];
    let server = Fencepost::with(&store, &flags).await;
    let browser = looking_at(&server).await;
    fence_off(&server.client(), "before", "a").await;
    browser.until(&format!("{ROWS} === 1")).await;
    drop(server);
    browser.until("document.getElementById('link').dataset.state === 'lost'").await;
    let said = browser.run("return document.getElementById('verdict').innerText").await;
    assert!(said.as_str().unwrap().contains("No connection to Fencepost since"), "{said}");

    let server = Fencepost::with(&store, &flags).await;
    browser.until(LIVE).await;
    fence_off(&server.client(), "after", "a").await;
    browser.until("document.querySelector('.row .key')?.textContent === 'after'").await;
    assert_eq!(browser.run(&format!("return {ROWS}")).await, 2, "what was seen is still there");
    browser.close().await;
}

/// However short the times are, their shares are those of the whole bar.
#[tokio::test]
async fn the_bar_of_times_is_full() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    assert_eq!(put(&server.client(), "k", 1, "A").await, 201);
    let browser = looking_at(&server).await;
    browser.until("document.querySelectorAll('#time-bar span').length === 2").await;
    browser
        .until(
            "(() => {
                 const bar = document.getElementById('time-bar');
                 const width = (it) => it.getBoundingClientRect().width;
                 const filled = [...bar.children].reduce((all, part) => all + width(part), 0);
                 return filled > 0.9 * width(bar);
             })()",
        )
        .await;
    leave(browser, &server).await;
}

/// A token of etcd's later epochs is larger than what a JavaScript number holds.
#[tokio::test]
async fn a_large_token_is_shown_to_its_last_digit() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    assert_eq!(put(&client, "k", i64::MAX, "new").await, 201);
    assert_eq!(put(&client, "k", i64::MAX - 2, "old").await, 409);
    let browser = looking_at(&server).await;
    browser.until(&format!("{ROWS} === 1")).await;
    let shown = browser.run("return document.querySelector('.against').textContent").await;
    let expected = format!("{} < {} 2 behind", i64::MAX - 2, i64::MAX);
    assert_eq!(shown, json!(expected));
    leave(browser, &server).await;
}

/// As judged by axe-core, for either colour scheme, at a desk and on a phone, with an explanation
/// open and without.
#[tokio::test]
async fn everybody_can_use_it() {
    let axe = "target/axe-core/4.14.0/node_modules/axe-core/axe.min.js";
    let axe = std::fs::read_to_string(axe).expect("axe-core: scripts/setup installs it");
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let held = answer(client.acquire("orders/42", &json!({"owner": "billing-8"}))).await;
    let token = held.json()["token"].as_i64().unwrap();
    assert_eq!(put(&client, "orders/42", token, "billing-8").await, 201);
    assert_eq!(put(&client, "orders/42", token + 7, "etl-import").await, 422);
    let browser = looking_at(&server).await;
    browser.run(&format!("{axe}\nwindow.axe = axe;")).await;
    browser.until(&format!("{ROWS} === 1")).await;
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        for width in [1280, 360] {
            browser.size(width, 900, 1.0).await;
            for open in [false, true] {
                if open {
                    browser.click("#rows button").await;
                    browser.until(OPEN).await;
                }
                browser.run("window.judged = null; axe.run().then((it) => { window.judged = it.violations.map((one) => \
                     `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`); })").await;
                browser.until("window.judged").await;
                let judged = browser.run("return window.judged").await;
                assert_eq!(judged, json!([]), "{scheme} {width} {open}");
                if open {
                    browser.run("document.getElementById('explanation').close()").await;
                }
            }
        }
    }
    leave(browser, &server).await;
}
