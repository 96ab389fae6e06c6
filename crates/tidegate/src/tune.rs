//! `tidegate tune`: finds the gains of the channel's controller on the running system.

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tidegate_channel::net::Dialer;
use tidegate_config::Dur;

use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Finds the gains of the channel's controller by a relay experiment on the running system.
///
/// While it runs the command swings between two values and the delay with it, by a bounded amount;
/// clients must have something to send all the time. From the swing come the ultimate gain and
/// period, and from these the gains of Ziegler and Nichols.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The proxy's admin listener.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9190")]
    admin: String,
    /// The admin listener's token.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// The command about which to swing: a share of clients, or seconds; the one in force if not
    /// given. It should be near the one that holds the setpoint.
    #[arg(long, value_name = "NUMBER")]
    bias: Option<f64>,
    /// How far; half the bias if not given.
    #[arg(long, value_name = "NUMBER")]
    swing: Option<f64>,
    /// How far past the setpoint the delay must be before it turns; a tenth of the setpoint if not
    /// given. More where the delay is noisy, but less than the swing moves it.
    #[arg(long, value_name = "TIME")]
    hysteresis: Option<Dur>,
    /// Periods of the controller after which it gives up.
    #[arg(long, value_name = "N", default_value_t = 300)]
    periods: usize,
    /// Put the gains that were found in force.
    #[arg(long)]
    apply: bool,
}

/// How often the experiment is looked at.
const EXPERIMENT_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    runtime::current_thread()?.block_on(tune(args))
}

async fn tune(args: &Args) -> Result<ExitCode, CliError> {
    let before = args.call(None).await?;
    let bias = match args.bias {
        Some(bias) => bias,
        None => command_in_force(&before)?,
    };
    let setpoint_s = before["setpoint_s"].as_f64().unwrap_or(1.0);
    let hysteresis_s = args
        .hysteresis
        .map_or(0.1 * setpoint_s, |it| it.as_secs_f64());
    let begin = json!({ "tune": {
        "bias": bias,
        "swing": args.swing.unwrap_or(bias / 2.0),
        "hysteresis_s": hysteresis_s,
        "periods_max": args.periods,
    }});
    args.call(Some(&begin)).await?;
    loop {
        tokio::time::sleep(EXPERIMENT_INTERVAL).await;
        let tuning = args.call(None).await?["tuning"].clone();
        if let Some(cause) = tuning["failed"].as_str() {
            return Err(CliError::Usage(format!("the experiment failed: {cause}")));
        }
        if let Some(found) = tuning.get("done") {
            return args.conclude(found).await;
        }
    }
}

/// The command in force, once the loop is closed.
fn command_in_force(status: &Value) -> Result<f64, CliError> {
    let command = status["command"].as_f64();
    let held_back = status["strategy"] != json!("open");
    command.filter(|_| held_back).ok_or_else(|| {
        let number = |name: &str| status[name].as_f64().unwrap_or(f64::NAN);
        let fill_s = number("clients") * number("work_s");
        CliError::Usage(format!(
            "nobody is held back at present, so that there is nothing to swing about: wait for more \
             load, or give --bias; with the clients of the last minute all sending, a share of {:.3} \
             or an interval of {fill_s:.1} s would hold the setpoint",
            number("setpoint_s") / fill_s,
        ))
    })
}

/// What was found, to be pasted into the configuration file.
fn section(found: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let gains = &found["gains"];
    let millis = |name: &str| 1000.0 * number(&gains[name]);
    format!(
        "# ultimate gain {:.3}, period {:.2} s; two thirds of the gain is calmer\n\
         [channel]\ngain = {:.3}\nintegral_time = \"{:.0}ms\"\nderivative_time = \"{:.0}ms\"\n",
        number(&found["ultimate_gain"]),
        number(&found["ultimate_period_s"]),
        number(&gains["gain"]),
        millis("integral_time_s"),
        millis("derivative_time_s"),
    )
}

impl Args {
    async fn conclude(&self, found: &Value) -> Result<ExitCode, CliError> {
        let gains = &found["gains"];
        print(&section(found))?;
        if self.apply {
            self.call(Some(&json!({ "gains": gains }))).await?;
            print("# in force until the next start; write them into the file to keep them\n")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The channel's state, after a command if there is one.
    async fn call(&self, command: Option<&Value>) -> Result<Value, CliError> {
        let failed = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!("{}: {error}; is the proxy running?", self.admin))
        };
        let uri = format!("{}/api/channel", self.admin.trim_end_matches('/'));
        let mut request = match command {
            Some(_) => Request::post(uri).header(CONTENT_TYPE, "application/json"),
            None => Request::get(uri),
        };
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = command.map_or_else(Bytes::new, |command| Bytes::from(command.to_string()));
        let request = request
            .body(Full::new(body))
            .map_err(|error| failed(&error))?;
        let response = Dialer::default()
            .send(request)
            .await
            .map_err(|error| failed(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        let answer = String::from_utf8_lossy(&body);
        if status.is_success() {
            serde_json::from_str(&answer).map_err(|error| failed(&error))
        } else {
            Err(failed(&answer))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_can_be_pasted_into_the_file() {
        let found = json!({
            "ultimate_gain": 0.312_345,
            "ultimate_period_s": 1.999,
            "gains": { "gain": 0.187_4, "integral_time_s": 0.9995, "derivative_time_s": 0.249_9 },
        });
        let text = format!("upstream = 'http://127.0.0.1:1'\n{}", section(&found));
        let config = tidegate_proxy::config::Config::from_text("t.toml", &text).unwrap();
        let channel = config.channel.unwrap();
        assert_eq!(channel.gain, 0.187);
        assert_eq!(*channel.integral_time, Duration::from_millis(1000));
        assert_eq!(*channel.derivative_time, Duration::from_millis(250));
    }

    #[test]
    fn an_open_channel_is_not_swung_about() {
        let mut status = json!({
            "strategy": "open", "command": 1.0, "setpoint_s": 0.2, "clients": 200.0, "work_s": 0.02,
        });
        let refused = command_in_force(&status).unwrap_err().to_string();
        assert!(
            refused.contains("0.050") && refused.contains("--bias"),
            "{refused}"
        );
        status["strategy"] = json!({ "interval": { "secs": 4, "nanos": 0 } });
        status["command"] = json!(4.0);
        assert_eq!(command_in_force(&status).unwrap(), 4.0);
    }
}
