//! Operators add and remove policies: limits on what may be sent. Each change is in the audit.

use landfall_chain::Network;

use crate::identity::{LabelError, check_label};
use crate::operator::{DecideError, Operator};
use crate::policy::{POLICIES_MAX, Policy, PolicyError, PolicyScope};
use crate::store::{Db, ORGANIZATION, StoreError, Tx, account_pages, identities, policies};

/// Why a policy was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyChangeError {
    #[error("there is no account {0}; `landfall account list` shows those that are")]
    NoAccount(String),
    #[error("there is no identity {0}; `landfall identity list` shows those that are")]
    NoIdentity(String),
    #[error("there is no organization {0}")]
    NoOrganization(String),
    #[error("{POLICIES_MAX} policies are in force, and no more are taken; `landfall policy list` shows them")]
    TooMany,
    #[error("no policy {0} is in force; `landfall policy list` shows those that are")]
    Unknown(String),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Label(#[from] LabelError),
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operator<'_> {
    /// Puts a policy in force, of currencies that `networks` list. What was accepted before it stays, and counts.
    ///
    /// # Errors
    /// See [`PolicyChangeError`].
    pub async fn add_policy(&self, db: &Db, policy: &Policy, networks: &[Network]) -> Result<(), PolicyChangeError> {
        check_label(&policy.label)?;
        policy.check_listed(networks)?;
        let mut tx = self.begin(db).await?;
        // Who adds others at the same time waits here: they are counted.
        identities::lock_organization(&mut tx).await?;
        scope_exists(&mut tx, &policy.scope).await?;
        if policies::in_force(&mut tx).await? >= POLICIES_MAX {
            return Err(PolicyChangeError::TooMany);
        }
        policies::insert(&mut tx, policy).await?;
        let limits: Vec<String> = policy.limits.iter().map(ToString::to_string).collect();
        let what = format!("{} {} {}: {}", policy.id, policy.scope.name(), policy.scope.id(), limits.join(", "));
        self.record(&mut tx, "add_policy", &what).await?;
        Ok(self.end(tx).await?)
    }

    /// Ends a policy: from now on it limits nothing. Returns it, as it is then.
    ///
    /// # Errors
    /// When no such policy is in force.
    pub async fn remove_policy(&self, db: &Db, id: &str) -> Result<Policy, PolicyChangeError> {
        let mut tx = self.begin(db).await?;
        let unknown = || PolicyChangeError::Unknown(id.to_owned());
        if !policies::remove(&mut tx, id, self.now).await? {
            return Err(unknown());
        }
        let removed = policies::by_id(&mut tx, id).await?.ok_or_else(unknown)?;
        self.record(&mut tx, "remove_policy", id).await?;
        self.end(tx).await?;
        Ok(removed)
    }
}

async fn scope_exists(tx: &mut Tx, scope: &PolicyScope) -> Result<(), PolicyChangeError> {
    match scope {
        PolicyScope::Organization(id) if id == ORGANIZATION => Ok(()),
        PolicyScope::Organization(id) => Err(PolicyChangeError::NoOrganization(id.clone())),
        PolicyScope::Identity(id) => match identities::by_id(tx, id).await? {
            Some(_) => Ok(()),
            None => Err(PolicyChangeError::NoIdentity(id.clone())),
        },
        PolicyScope::Account(id) => match account_pages::identity(tx, id).await? {
            Some(_) => Ok(()),
            None => Err(PolicyChangeError::NoAccount(id.clone())),
        },
    }
}
