//! A model on loopback for real agents: whatever it is asked, it first has the agent run one shell
//! command, then says that it is done. Speaks the streams of Anthropic's Messages and of OpenAI's
//! Responses, as far as a command line agent reads them.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

/// What the agent is told to run: one file made, one changed, one removed.
pub const COMMAND: &str =
    "printf agent > made-by-agent.txt && printf changed > a.txt && rm gone.txt";

/// Listens until the test process ends; returns the base address, `http://127.0.0.1:PORT`.
pub fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // An agent that hangs up in the middle is no concern of the test.
                let _ = converse(stream);
            });
        }
    });
    format!("http://127.0.0.1:{port}")
}

fn converse(stream: TcpStream) -> std::io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    while let Some((method, path, body)) = read_request(&mut input)? {
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (kind, text) = answer(&method, &path, &body);
        let length = text.len();
        write!(
            output,
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        )?;
        if method != "HEAD" {
            output.write_all(text.as_bytes())?;
        }
        output.flush()?;
    }
    Ok(())
}

fn read_request(input: &mut impl BufRead) -> std::io::Result<Option<(String, String, Vec<u8>)>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut length = 0;
    loop {
        let mut header = String::new();
        input.read_line(&mut header)?;
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some((method, path, body)))
}

fn answer(method: &str, path: &str, body: &Value) -> (&'static str, String) {
    let json_answer = |value: Value| ("application/json", value.to_string());
    if method != "POST" {
        return json_answer(json!({}));
    }
    if path.starts_with("/v1/messages/count_tokens") {
        json_answer(json!({"input_tokens": 1}))
    } else if path.starts_with("/v1/messages") {
        let message = message(body);
        if body["stream"] == true {
            ("text/event-stream", message_stream(&message))
        } else {
            json_answer(message)
        }
    } else if path.ends_with("/responses") {
        ("text/event-stream", response_stream(body))
    } else {
        json_answer(json!({}))
    }
}

/// The next turn in the Messages form.
fn message(body: &Value) -> Value {
    let has_result = contains(&body["messages"], "type", "tool_result");
    let offers_shell = contains(&body["tools"], "name", "Bash");
    let (content, reason) = if offers_shell && !has_result {
        let input = json!({"command": COMMAND, "description": "edit"});
        (
            json!({"type": "tool_use", "id": "toolu_edit", "name": "Bash", "input": input}),
            "tool_use",
        )
    } else {
        (json!({"type": "text", "text": "All done."}), "end_turn")
    };
    json!({
        "id": "msg_edit", "type": "message", "role": "assistant", "model": body["model"],
        "content": [content], "stop_reason": reason, "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    })
}

fn message_stream(message: &Value) -> String {
    let block = &message["content"][0];
    let mut head = message.clone();
    head["content"] = json!([]);
    head["stop_reason"] = Value::Null;
    let (start, delta) = if block["type"] == "text" {
        (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": block["text"]}),
        )
    } else {
        let mut start = block.clone();
        start["input"] = json!({});
        let input = block["input"].to_string();
        (
            start,
            json!({"type": "input_json_delta", "partial_json": input}),
        )
    };
    events(&[
        json!({"type": "message_start", "message": head}),
        json!({"type": "content_block_start", "index": 0, "content_block": start}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": null},
            "usage": {"output_tokens": 1},
        }),
        json!({"type": "message_stop"}),
    ])
}

/// The next turn in the Responses form.
fn response_stream(body: &Value) -> String {
    let item = if ends_with(&body["input"], "type", "_call_output") {
        json!({
            "type": "message", "id": "msg_done", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "All done.", "annotations": []}],
        })
    } else {
        shell_call(&body["tools"])
    };
    let response = |status: &str, output: Value| {
        json!({
            "id": "resp_edit", "object": "response", "created_at": 0, "status": status,
            "model": body["model"], "output": output,
            "usage": {
                "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        })
    };
    events(&[
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response("completed", json!([item]))}),
    ])
}

/// A call of whichever shell tool is offered.
fn shell_call(tools: &Value) -> Value {
    let offered = |name: &str| contains(tools, "name", name);
    let function = |name: &str, arguments: Value| {
        json!({
            "type": "function_call", "id": "fc_edit", "call_id": "call_edit", "name": name,
            "arguments": arguments.to_string(), "status": "completed",
        })
    };
    if offered("exec_command") {
        function("exec_command", json!({"cmd": COMMAND}))
    } else if offered("shell_command") {
        function("shell_command", json!({"command": COMMAND}))
    } else if offered("exec") {
        // A tool that takes a program in JavaScript, with the shell as a function.
        let code = format!(
            "const r = await tools.exec_command({{cmd: {}}}); text(r.output)",
            Value::from(COMMAND)
        );
        json!({
            "type": "custom_tool_call", "id": "ctc_edit", "call_id": "call_edit", "name": "exec",
            "input": code, "status": "completed",
        })
    } else {
        function("shell", json!({"command": ["bash", "-lc", COMMAND]}))
    }
}

/// Whether `field` is `value` anywhere below.
fn contains(within: &Value, field: &str, value: &str) -> bool {
    any(within, field, &|text| text == value)
}

fn ends_with(within: &Value, field: &str, end: &str) -> bool {
    any(within, field, &|text| text.ends_with(end))
}

fn any(within: &Value, field: &str, fits: &dyn Fn(&str) -> bool) -> bool {
    match within {
        Value::Array(items) => items.iter().any(|item| any(item, field, fits)),
        Value::Object(map) => {
            map.get(field).and_then(Value::as_str).is_some_and(fits)
                || map.values().any(|item| any(item, field, fits))
        }
        _ => false,
    }
}

fn events(list: &[Value]) -> String {
    let mut stream = String::new();
    for event in list {
        let kind = event["type"].as_str().unwrap_or_default();
        let _ = write!(stream, "event: {kind}\ndata: {event}\n\n");
    }
    stream
}
