//! What is sent to receivers, for the document's section `webhooks`: the envelope, the headers, and which answers
//! count.
//!
//! Nothing is sent from here; `delivery` does that, and `webhook` signs it.

use serde::Serialize;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{Content, OpenApi, Paths, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{Modify, PartialSchema, ToSchema};

use crate::api::openapi;
use crate::api::transfers::TransferResource;
use crate::event::{
    DEPOSIT_EVENT, IDENTITY_EVENT, TEST_EVENT, TRANSFER_FAILED_EVENT, TRANSFER_RECONCILIATION_EVENT,
    TRANSFER_SUBMITTED_EVENT,
};

/// Describes what receivers are sent.
pub(super) struct Pushed;

/// A change of an identity's status as it is signed and sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IdentityEnvelope {
    #[schema(format = "uuid")]
    id: String,
    #[schema(schema_with = openapi::identity_event_type)]
    r#type: String,
    data: IdentityStatusUpdate,
}

/// What an identity and its accounts are from now on, and what it was before.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct IdentityStatusUpdate {
    identity: IdentityReported,
    /// The accounts whose status follows from it, oldest first. There is a further event for each 500 more.
    #[schema(max_items = 500)]
    affected_account_ids: Vec<String>,
    /// Why, as the person who decided it wrote it.
    #[schema(required = true)]
    status_reason: Option<String>,
    #[schema(schema_with = openapi::identity_status)]
    previous_status: String,
    #[schema(schema_with = openapi::sub_status)]
    previous_sub_status: String,
}

/// The identity as it is from now on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct IdentityReported {
    id: String,
    /// Chosen by the client; may be empty.
    label: String,
    #[schema(schema_with = openapi::identity_type)]
    identity_type: String,
    #[schema(schema_with = openapi::identity_status)]
    status: String,
    #[schema(schema_with = openapi::sub_status)]
    sub_status: String,
}

/// The event of a transfer that was handed to a node, as it is signed and sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferSubmittedEnvelope {
    #[schema(format = "uuid")]
    id: String,
    #[schema(schema_with = openapi::transfer_submitted_type)]
    r#type: String,
    data: TransferResource,
}

/// The event of a transfer's block, as it is signed and sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferReconciliationEnvelope {
    #[schema(format = "uuid")]
    id: String,
    #[schema(schema_with = openapi::transfer_reconciliation_type)]
    r#type: String,
    #[schema(value_type = TransferReconciliation)]
    data: TransferResource,
}

/// The event of a transfer that is FAILED or DROPPED, as it is signed and sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferFailedEnvelope {
    #[schema(format = "uuid")]
    id: String,
    #[schema(schema_with = openapi::transfer_failed_type)]
    r#type: String,
    data: TransferResource,
}

/// The schema of a transfer with its stage and block.
struct TransferReconciliation;

impl PartialSchema for TransferReconciliation {
    /// The fields of the transfer and two more. A composition would not do, because a transfer has no other fields.
    fn schema() -> RefOr<Schema> {
        let mut schema = TransferResource::schema();
        if let RefOr::T(Schema::Object(fields)) = &mut schema {
            fields.description = Some("The transfer at this stage, and the block that the stage is about.".to_owned());
            for (name, field) in [("stage", openapi::stage()), ("block_number", openapi::block_number())] {
                fields.properties.insert(name.to_owned(), field.into());
                fields.required.push(name.to_owned());
            }
        }
        schema
    }
}

impl ToSchema for TransferReconciliation {}

/// A test event as it is signed and sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TestEnvelope {
    #[schema(format = "uuid")]
    id: String,
    #[schema(schema_with = openapi::test_event_type)]
    r#type: String,
    data: WebhookTestEvent,
}

/// Which webhook was tested, and when.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WebhookTestEvent {
    webhook_id: String,
    #[schema(format = DateTime)]
    created_at: String,
}

const HEADERS: [(&str, &str); 3] = [
    ("webhook-id", "The `id` of the envelope, the same at every attempt."),
    ("webhook-timestamp", "When this attempt was signed, in seconds since 1970. Refuse what is older than 5 minutes."),
    (
        "webhook-signature",
        "Signatures as Standard Webhooks say, with a space between: `v1,` and HMAC-SHA256 of `id.timestamp.body` with \
         `signing_key`, `v1a,` and Ed25519 where it was asked for. One that verifies is enough: after a rotation there are more.",
    ),
];
const ANSWERS: &str = "Any 2xx within 15 seconds: it arrived. Any other answer, and none, is tried again for 7 days and then probed for \
                       ever; `Retry-After` is heard within bounds, redirects are not followed, and 410 stops the webhook until an \
                       operator resumes it.";
/// How each kind is deduplicated.
const OF_DEPOSITS: &str =
    "At least once, and in order for each deposit: deduplicate on (`data.dedup_key`, `data.status`).";
const OF_IDENTITIES: &str = "At least once, and in order for each identity: deduplicate on the envelope's `id`. `status` may be one \
                             that the identity was in before, so it tells nothing apart.";
const OF_TRANSFERS: &str = "At least once, and in order for each transfer: deduplicate on the envelope's `id`. After a reorg a stage \
                            may come again, under another `id`.";
const OF_TESTS: &str = "At least once: deduplicate on the envelope's `id`.";

impl Modify for Pushed {
    fn modify(&self, document: &mut OpenApi) {
        let mut pushed = Paths::new();
        let deposit = "A deposit was seen, is final, or did not happen after all.";
        let identity = "An identity was suspended, reinstated or terminated, and its accounts with it.";
        let submitted = "A transfer was handed to a node of its chain, or may have been.";
        let stage = "A block includes the transfer, a reorg took that back, or it is final.";
        let failed = "A transfer was not paid, and never will be.";
        let test = "Sent when a test is asked for. It is not in the feed.";
        for (kind, schema, summary, once) in [
            (DEPOSIT_EVENT, "DepositEnvelope", deposit, OF_DEPOSITS),
            (IDENTITY_EVENT, "IdentityEnvelope", identity, OF_IDENTITIES),
            (TRANSFER_SUBMITTED_EVENT, "TransferSubmittedEnvelope", submitted, OF_TRANSFERS),
            (TRANSFER_RECONCILIATION_EVENT, "TransferReconciliationEnvelope", stage, OF_TRANSFERS),
            (TRANSFER_FAILED_EVENT, "TransferFailedEnvelope", failed, OF_TRANSFERS),
            (TEST_EVENT, "TestEnvelope", test, OF_TESTS),
        ] {
            let operation = OperationBuilder::new()
                .operation_id(Some(format!("receive_{kind}")))
                .summary(Some(summary))
                .description(Some(format!("{ANSWERS} {once}")))
                .tag("Webhooks")
                .parameters(Some(HEADERS.map(|(name, description)| header(name, description))))
                .request_body(Some(
                    RequestBodyBuilder::new()
                        .content("application/json", Content::new(Some(Ref::from_schema_name(schema))))
                        .required(Some(Required::True))
                        .build(),
                ))
                .response("2XX", ResponseBuilder::new().description("It arrived."))
                .response("default", ResponseBuilder::new().description("It did not, and is sent again."))
                // Signed by us. No API key is involved.
                .securities(Some([]));
            let extension = serde_json::json!(true);
            let mut operation = operation.build();
            if kind == TEST_EVENT {
                operation.extensions.get_or_insert_default().insert("x-landfall-extension".to_owned(), extension);
            }
            pushed.paths.insert(kind.to_owned(), PathItem::new(HttpMethod::Post, operation));
        }
        document.webhooks = Some(pushed);
    }
}

fn header(name: &str, description: &str) -> ParameterBuilder {
    let schema = match name {
        "webhook-timestamp" => {
            ObjectBuilder::new().schema_type(Type::Integer).format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        }
        _ => ObjectBuilder::new().schema_type(Type::String),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
}
