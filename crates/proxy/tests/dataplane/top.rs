//! Which paths and tenants cost most and are shed most.

use std::time::Duration;

use tidegate_proxy::Running;
use tidegate_proxy::metrics::{Heavy, Top};

use crate::support::*;

fn top(proxy: &Running) -> Top {
    let application = proxy.state().first();
    application.metrics().top(application.now())
}

fn find<'a>(all: &'a [Heavy], name: &str) -> &'a Heavy {
    let found = all.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("{name} in {all:?}"))
}

#[tokio::test]
async fn costly_path_is_found_with_ids_folded_and_tenants_by_address() {
    let service = Service::start(|request| async move {
        if request.uri().path().starts_with("/report/") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        text("served")
    })
    .await;
    let proxy = proxy(&[service.addr], "tenant = 'address'");
    let mut client = Client::connect(proxy.local_addr()).await;
    for number in 0..5 {
        for path in [format!("/report/{number}"), "/cheap".to_owned()] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
            assert_eq!(client.ask(head).await.status, 200);
        }
    }
    eventually("all requests are counted", || {
        let top = top(&proxy);
        top.paths.len() == 2 && top.tenants.len() == 1
    })
    .await;
    let top = top(&proxy);
    let (report, cheap) = (find(&top.paths, "/report/:id"), find(&top.paths, "/cheap"));
    let mean = report.in_service / report.served_per_second;
    assert!(mean >= 0.05, "{mean}");
    assert!(report.in_service > cheap.in_service);
    assert_eq!(report.shed_per_second, 0.0);
    assert!(find(&top.tenants, "127.0.0.1").in_service >= report.in_service);
}

#[tokio::test]
async fn path_that_is_shed_is_found_and_a_cookie_is_not_shown() {
    let service = Service::echo().await;
    let proxy = proxy(
        &[service.addr],
        "protect.mode = 'static'\nprotect.static.share = '0%'\ntenant = 'cookie:sid'\n\
         forward.trust = ['127.0.0.0/8']",
    );
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..5 {
        let head = "GET /shed HTTP/1.1\r\nhost: a\r\ncookie: sid=secret\r\n\r\n";
        assert_eq!(client.ask(head).await.status, 503);
    }
    let top = top(&proxy);
    let shed = find(&top.paths, "/shed");
    assert!(shed.shed_per_second > 0.0 && shed.in_service == 0.0);
    assert_eq!(shed.shed_per_second, shed.arrived_per_second);
    assert!(top.tenants[0].name.starts_with('#'), "{:?}", top.tenants);
}
