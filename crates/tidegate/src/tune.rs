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
    /// given.
    #[arg(long, value_name = "NUMBER")]
    bias: Option<f64>,
    /// How far; half the bias if not given.
    #[arg(long, value_name = "NUMBER")]
    swing: Option<f64>,
    /// How far past the setpoint the delay must be before it turns: two to three times its noise.
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    hysteresis: Dur,
    /// Periods of the controller after which it gives up.
    #[arg(long, value_name = "N", default_value_t = 300)]
    periods: usize,
    /// Put the gains that were found in force.
    #[arg(long)]
    apply: bool,
}

/// How often the experiment is looked at.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    runtime::current_thread()?.block_on(tune(args))
}

async fn tune(args: &Args) -> Result<ExitCode, CliError> {
    let before = args.call(None).await?;
    let bias = args.bias.or(before["command"].as_f64()).unwrap_or(0.1);
    let begin = json!({ "tune": {
        "bias": bias,
        "swing": args.swing.unwrap_or(bias / 2.0),
        "hysteresis_s": args.hysteresis.as_secs_f64(),
        "periods_max": args.periods,
    }});
    args.call(Some(&begin)).await?;
    loop {
        tokio::time::sleep(LOOK).await;
        let tuning = args.call(None).await?["tuning"].clone();
        if let Some(cause) = tuning["failed"].as_str() {
            return Err(CliError::Usage(format!("the experiment failed: {cause}")));
        }
        if let Some(found) = tuning.get("done") {
            return args.conclude(found).await;
        }
    }
}

impl Args {
    async fn conclude(&self, found: &Value) -> Result<ExitCode, CliError> {
        let gains = &found["gains"];
        print(&format!(
            "ultimate gain {}, period {} s\n[channel]\ngain = {}\nintegral_time = \"{}s\"\nderivative_time = \"{}s\"\n",
            found["ultimate_gain"],
            found["ultimate_period_s"],
            gains["gain"],
            gains["integral_time_s"],
            gains["derivative_time_s"],
        ))?;
        if self.apply {
            self.call(Some(&json!({ "gains": gains }))).await?;
            print("in force until the next start; write them into the file to keep them\n")?;
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
        match status.is_success() {
            true => serde_json::from_str(&answer).map_err(|error| failed(&error)),
            false => Err(failed(&answer)),
        }
    }
}
