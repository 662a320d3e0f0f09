//! The examples of the document: requests as they were sent, and what the router answered them.
//!
//! `examples.json` is written by a test (`tests/it/api/examples.rs`). It sends the requests and checks each answer
//! against its schema; it fails where the file differs from the answers of today. Secrets in the file are made up.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use utoipa::Modify;
use utoipa::openapi::example::Example;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder};
use utoipa::openapi::{Content, OpenApi, PathItem, Ref, RefOr};

use crate::api::problem::Code;

const MADE: &str = include_str!("examples.json");

/// Puts the examples where they belong.
pub(super) struct Examples;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    /// By `operationId`.
    operations: BTreeMap<String, OfOperation>,
    /// What is the same for all operations, by its code.
    refusals: BTreeMap<String, Value>,
    /// What is sent to receivers, by its type.
    events: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfOperation {
    parameters: BTreeMap<String, Value>,
    body: Option<Value>,
    /// By status; where an operation refuses with several codes of one status, by `409 CODE`.
    answers: BTreeMap<String, Value>,
}

impl Modify for Examples {
    fn modify(&self, document: &mut OpenApi) {
        let made: Made = serde_json::from_str(MADE).expect("the test that wrote it reads it");
        let components = document.components.get_or_insert_default();
        for (code, problem) in &made.refusals {
            components.examples.insert(code.clone(), example(problem).into());
        }
        for operation in document.paths.paths.values_mut().flat_map(operations) {
            let of = operation.operation_id.as_ref().and_then(|id| made.operations.get(id));
            if let Some(of) = of {
                of.show(operation);
            }
            refuse(operation, &made.refusals);
        }
        for (kind, item) in document.webhooks.iter_mut().flat_map(|webhooks| &mut webhooks.paths) {
            if let (Some(operation), Some(event)) = (item.post.as_mut(), made.events.get(kind)) {
                send(operation, event);
            }
        }
    }
}

/// The operations of a path.
pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let methods = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete, &mut item.head];
    methods.into_iter().flatten()
}

impl OfOperation {
    fn show(&self, operation: &mut Operation) {
        for parameter in operation.parameters.iter_mut().flatten().filter_map(owned) {
            if let Some(value) = self.parameters.get(&parameter.name) {
                let with = ParameterBuilder::from(std::mem::replace(parameter, Parameter::new("")));
                *parameter = with.example(Some(value.clone())).build();
            }
        }
        if let Some(body) = &self.body {
            send(operation, body);
        }
        for (key, answer) in &self.answers {
            let (status, code) =
                key.split_once(' ').map_or((key.as_str(), None), |(status, code)| (status, Some(code)));
            for content in contents(operation, status) {
                match code {
                    None => content.example = Some(answer.clone()),
                    Some(code) => drop(content.examples.insert(code.to_owned(), example(answer).into())),
                }
            }
        }
    }
}

/// Adds the refusals that all operations have. Where the operation has a refusal of its own with the same status, both
/// are named.
fn refuse(operation: &mut Operation, refusals: &BTreeMap<String, Value>) {
    for code in Code::EVERYWHERE.into_iter().filter(|code| refusals.contains_key(code.name())) {
        for content in contents(operation, code.status().as_str()) {
            if let Some(own) = content.example.take() {
                let code = own["code"].as_str().unwrap_or_default().to_owned();
                content.examples.insert(code, example(&own).into());
            }
            let refusal = Ref::new(format!("#/components/examples/{}", code.name()));
            content.examples.insert(code.name().to_owned(), RefOr::Ref(refusal));
        }
    }
}

fn send(operation: &mut Operation, body: &Value) {
    let request = operation.request_body.iter_mut().filter_map(owned);
    for content in request.flat_map(|request| request.content.values_mut().filter_map(owned)) {
        content.example = Some(body.clone());
    }
}

fn contents<'a>(operation: &'a mut Operation, status: &str) -> impl Iterator<Item = &'a mut Content> {
    let response = operation.responses.responses.get_mut(status);
    let response = response.into_iter().filter_map(owned);
    response.flat_map(|response| response.content.values_mut().filter_map(owned))
}

/// The object itself, not a reference: this document has references to schemas and examples only.
fn owned<T>(found: &mut RefOr<T>) -> Option<&mut T> {
    match found {
        RefOr::T(owned) => Some(owned),
        RefOr::Ref(_) => None,
    }
}

fn example(value: &Value) -> Example {
    let mut example = Example::new();
    example.value = Some(value.clone());
    example
}
