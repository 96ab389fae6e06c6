//! The page that a person reads when a request was shed.
//!
//! It says one thing, counts down and tries again by itself. Without scripts the browser does the
//! same by `<meta http-equiv="refresh">`. Two waits that began together must not end together: the
//! seconds of the page are those of `retry-after`, at least five, plus a share that differs by
//! request, and the script adds a random part of its own. A page in a hidden tab waits until a
//! person looks at it.
//!
//! A request that changes something (a form that was sent) is not repeated unasked: its page has
//! no countdown.
//!
//! The seconds always take three digits, so that all pages have the same length and the head of
//! the answer can be written in advance.

use std::sync::OnceLock;

use bytes::Bytes;

use super::page::escape;
use crate::config::RefusalTexts;

/// The longest wait of a page: three digits.
const SECONDS_MAX: usize = 180;

/// The shortest wait of a page. Chosen: a page that comes back every second would be load of its
/// own, and a person does not notice the difference.
const SECONDS_MIN: usize = 5;

/// Stands for the seconds in a text.
const SECONDS: &str = "{seconds}";

const TITLE: &str = "One moment, please";
const MESSAGE: &str = "There is more to do right now than can be done at once. \
    This page tries again by itself.";
const FORM_MESSAGE: &str = "There is more to do right now than can be done at once. \
    Nothing was changed. Please go back and send it again in a moment.";
const COUNTDOWN: &str = "Next try in {seconds} s";

const STYLE: &str = ":root{color-scheme:light dark}body{font:1.1rem/1.5 system-ui,sans-serif;\
    max-width:32rem;margin:20vh auto;padding:0 1.2rem;color:#222;background:#fff}\
    h1{font-size:1.5rem;margin:0 0 .5rem}p{margin:.5rem 0}#wait{color:#666;\
    font-variant-numeric:tabular-nums}progress{width:100%;height:.4rem;accent-color:#3b7dd8}\
    @media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}#wait{color:#999}}";

/// Counts down the wait and a random share of it, at most half, then loads the page anew; a hidden
/// tab only when it is looked at.
const SCRIPT: &str = "(function(){var d=document,w=d.getElementById('wait'),\
    b=d.getElementById('bar'),s=+w.dataset.seconds,all=s*(1+Math.random()/2)*1e3,\
    end=Date.now()+all,gone=false;function go(){if(!gone&&!d.hidden&&Date.now()>=end)\
    {gone=true;location.reload()}}function tick(){var left=Math.max(0,end-Date.now());\
    w.textContent=w.dataset.text.replace('{seconds}',Math.ceil(left/1e3));\
    b.value=1-left/all;go()}b.hidden=false;tick();setInterval(tick,250);\
    d.addEventListener('visibilitychange',go)})()";

/// The two pages, written around the seconds.
#[derive(Debug)]
pub(super) struct PeoplePages {
    /// Up to the first place of the seconds, between the two, and the rest.
    parts: [String; 3],
    /// By seconds, written when first needed.
    counting: Vec<OnceLock<Bytes>>,
    /// For a request that must not be repeated unasked.
    form: Bytes,
}

impl PeoplePages {
    pub(super) fn new(texts: &RefusalTexts) -> Self {
        let title = texts.title.as_deref().unwrap_or(TITLE);
        let message = texts.message.as_deref();
        let countdown = escape(texts.countdown.as_deref().unwrap_or(COUNTDOWN));
        let style = texts.style.as_deref().unwrap_or("");
        let head = head(title, style);
        let said = body(title, message.unwrap_or(MESSAGE));
        Self {
            parts: [
                format!("{head}<noscript><meta http-equiv=\"refresh\" content=\""),
                format!("\"></noscript></head>{said}<p id=\"wait\" data-seconds=\""),
                format!(
                    "\" data-text=\"{countdown}\"></p><progress id=\"bar\" hidden></progress>\
                     <script>{SCRIPT}</script></body></html>\n"
                ),
            ],
            counting: (0..=SECONDS_MAX).map(|_| OnceLock::new()).collect(),
            form: form(&head, title, message),
        }
    }

    /// The page for a request that may be repeated. `salt` differs by request: it spreads those
    /// that wait without a script over half of the wait again.
    pub(super) fn counting(&self, retry_after_s: usize, salt: u64) -> Bytes {
        let least = retry_after_s.max(SECONDS_MIN);
        let spread = least as u64 / 2 + 1;
        let seconds = (least + (salt % spread) as usize).min(SECONDS_MAX);
        let page = self.counting[seconds].get_or_init(|| self.write(seconds));
        page.clone()
    }

    pub(super) fn form(&self) -> Bytes {
        self.form.clone()
    }

    fn write(&self, seconds: usize) -> Bytes {
        let [start, middle, end] = &self.parts;
        format!("{start}{seconds:03}{middle}{seconds:03}{end}").into()
    }
}

fn head(title: &str, style: &str) -> String {
    let title = escape(title);
    // A style that ends its element would begin another one.
    let style = style.replace("</", "<\\/");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}{style}</style>"
    )
}

fn body(title: &str, message: &str) -> String {
    let (title, message) = (escape(title), escape(message));
    format!("<body><h1>{title}</h1><p>{message}</p>")
}

fn form(head: &str, title: &str, message: Option<&str>) -> Bytes {
    let body = body(title, message.unwrap_or(FORM_MESSAGE));
    format!("{head}</head>{body}</body></html>\n").into()
}

/// Whether a text for the countdown names the seconds.
pub(crate) fn names_seconds(text: &str) -> bool {
    text.contains(SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(page: &Bytes) -> &str {
        std::str::from_utf8(page).expect("pages are text")
    }

    #[test]
    fn pages_have_one_length_whatever_the_seconds() {
        let pages = PeoplePages::new(&RefusalTexts::default());
        let lengths: Vec<_> = (1..=120).map(|s| pages.counting(s, 7).len()).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]));
        assert!(text(&pages.counting(9, 0)).contains("content=\"009\""));
        assert!(text(&pages.counting(9, 0)).contains("data-seconds=\"009\""));
    }

    #[test]
    fn waits_without_a_script_do_not_end_together() {
        let pages = PeoplePages::new(&RefusalTexts::default());
        let different: std::collections::BTreeSet<_> =
            (0..100).map(|salt| pages.counting(10, salt)).collect();
        assert_eq!(different.len(), 6, "10 to 15 seconds");
        assert!(text(&pages.counting(1, 0)).contains("data-seconds=\"005\""));
    }

    #[test]
    fn form_is_not_sent_again_by_itself() {
        let pages = PeoplePages::new(&RefusalTexts::default());
        let form = pages.form();
        assert!(!text(&form).contains("refresh") && !text(&form).contains("<script"));
        assert!(text(&form).contains("go back"));
    }

    #[test]
    fn texts_of_the_operator_are_escaped_and_the_style_stays_in_its_element() {
        let pages = PeoplePages::new(&RefusalTexts {
            title: Some("<Bücher>".into()),
            countdown: Some("Noch \"{seconds}\" s".into()),
            style: Some("h1{color:red}</style><script>".into()),
            ..RefusalTexts::default()
        });
        let page = pages.counting(3, 0);
        assert!(text(&page).contains("&lt;Bücher&gt;"));
        assert!(text(&page).contains("data-text=\"Noch &#34;{seconds}&#34; s\""));
        assert_eq!(text(&page).matches("</style>").count(), 1);
    }
}
