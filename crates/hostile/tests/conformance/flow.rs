//! Sections 5.2 and 6.9: nothing is sent that the other side has no room for.

use super::*;

const INITIAL_WINDOW_SIZE: u16 = 4;

/// Reads until this many bytes of the answer have come; the length of every frame of them.
async fn pieces(reader: &mut Reader, wanted: usize) -> Vec<usize> {
    let mut pieces = Vec::new();
    let reading = async {
        while pieces.iter().sum::<usize>() < wanted {
            let received = reader.next().await.expect("the connection goes on");
            if received.kind == kind::DATA && !received.payload.is_empty() {
                pieces.push(received.payload.len());
            }
        }
    };
    within(reading).await;
    pieces
}

/// Whether two PINGs are answered and no DATA comes. An answer may overtake DATA that is ready to
/// be sent, but that is on its way before the second PING is read.
async fn is_silent(reader: &mut Reader, writer: &mut Writer) -> bool {
    is_silent_once(reader, writer).await && is_silent_once(reader, writer).await
}

async fn is_silent_once(reader: &mut Reader, writer: &mut Writer) -> bool {
    let ping = frame(kind::PING, 0, 0, &PING_SENT);
    writer.send(&ping).await.expect("the connection goes on");
    let waiting = async {
        loop {
            let received = reader.next().await.expect("the connection goes on");
            match received.kind {
                kind::DATA if !received.payload.is_empty() => return false,
                kind::PING if received.payload == PING_SENT => return true,
                _ => {}
            }
        }
    };
    within(waiting).await
}

/// Waits for the head of the answer, behind which the body would come.
async fn head(reader: &mut Reader) {
    let waiting = async {
        while reader.next().await.expect("the connection goes on").kind != kind::HEADERS {}
    };
    within(waiting).await;
}

#[tokio::test]
async fn section_6_9_1_a_window_of_one_byte() {
    let (_upstream, _proxy, addr) = stage().await;
    let (mut reader, mut writer) = frames::connect(addr).await.unwrap();
    let opening = [setting(INITIAL_WINDOW_SIZE, 1), get(1)].concat();
    writer.send(&opening).await.unwrap();
    assert_eq!(pieces(&mut reader, 1).await, [1]);
    assert!(is_silent(&mut reader, &mut writer).await);
    writer.send(&window(1, 2)).await.unwrap();
    assert_eq!(pieces(&mut reader, 2).await, [2]);
    writer.send(&window(1, 100)).await.unwrap();
    assert_eq!(pieces(&mut reader, 2).await, [2]);
}

#[tokio::test]
async fn section_6_9_2_a_change_of_the_initial_size() {
    let (_upstream, _proxy, addr) = stage().await;
    let (mut reader, mut writer) = frames::connect(addr).await.unwrap();
    let opening = [setting(INITIAL_WINDOW_SIZE, 0), get(1)].concat();
    writer.send(&opening).await.unwrap();
    head(&mut reader).await;
    assert!(is_silent(&mut reader, &mut writer).await);
    writer.send(&setting(INITIAL_WINDOW_SIZE, 1)).await.unwrap();
    assert_eq!(pieces(&mut reader, 1).await, [1]);
}

#[tokio::test]
async fn section_6_9_2_a_window_below_nothing() {
    let (_upstream, _proxy, addr) = stage().await;
    let (mut reader, mut writer) = frames::connect(addr).await.unwrap();
    let opening = [setting(INITIAL_WINDOW_SIZE, 3), get(1)].concat();
    writer.send(&opening).await.unwrap();
    assert_eq!(pieces(&mut reader, 3).await, [3]);
    // Three bytes are out and only two may be: the window is at minus one.
    writer.send(&setting(INITIAL_WINDOW_SIZE, 2)).await.unwrap();
    writer.send(&window(1, 1)).await.unwrap();
    assert!(is_silent(&mut reader, &mut writer).await);
    writer.send(&window(1, 1)).await.unwrap();
    assert_eq!(pieces(&mut reader, 1).await, [1]);
}
