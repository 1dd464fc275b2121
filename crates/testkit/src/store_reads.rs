//! The reads of the `Store` port, passed on by a store that stands before another one.

/// Writes the methods by which `ports::Store` is read, inside of an `impl Store`. Each asks the store in the named field, and
/// its answer goes through the named method, which takes and gives back
/// `BoxFuture<'a, Result<T, StoreError>>`.
///
/// ```
/// use portcullis_domain::ports::{BoxFuture, Store, StoreError};
/// # use portcullis_domain::ports::{Append, Committed, Reminder};
/// # use portcullis_domain::{id::*, lease::Epoch, scope::Scope, time::Timestamp};
/// # use portcullis_canon::Digest;
///
/// /// Reads as the one behind does, and takes nothing.
/// struct Sealed {
///     inner: Box<dyn Store>,
/// }
///
/// impl Sealed {
///     fn as_it_is<'a, T>(
///         &'a self,
///         read: BoxFuture<'a, Result<T, StoreError>>,
///     ) -> BoxFuture<'a, Result<T, StoreError>> {
///         read
///     }
/// }
///
/// impl Store for Sealed {
///     portcullis_testkit::store_reads!(inner, as_it_is);
///     // … and what writes.
/// #   fn instance(&self) -> InstanceId { self.inner.instance() }
/// #   fn append<'a>(&'a self, _: &'a Scope, _: Append) -> BoxFuture<'a, Result<Committed, StoreError>> {
/// #       Box::pin(async { Err(StoreError::Closed) })
/// #   }
/// #   fn renew<'a>(&'a self, _: &'a Scope, _: RunId, _: Epoch, _: Timestamp, _: Timestamp)
/// #       -> BoxFuture<'a, Result<(), StoreError>> {
/// #       Box::pin(async { Err(StoreError::Closed) })
/// #   }
/// #   fn remind<'a>(&'a self, _: &'a Scope, _: Reminder) -> BoxFuture<'a, Result<(), StoreError>> {
/// #       Box::pin(async { Err(StoreError::Closed) })
/// #   }
/// #   fn erase<'a>(&'a self, _: &'a Scope, _: Digest, _: &'a str, _: Timestamp)
/// #       -> BoxFuture<'a, Result<(), StoreError>> {
/// #       Box::pin(async { Err(StoreError::Closed) })
/// #   }
/// }
/// ```
#[macro_export]
macro_rules! store_reads {
    ($first:ident $(. $more:ident)*, $through:ident) => {
        $crate::store_reads! { @each ($first $(. $more)*) $through
            fn run(run: ::portcullis_domain::id::RunId)
                -> Option<::portcullis_domain::fold::RunState>;
            fn lease(run: ::portcullis_domain::id::RunId)
                -> Option<::portcullis_domain::ports::LeaseTerm>;
            fn thread(thread: ::portcullis_domain::id::ThreadId)
                -> Option<::portcullis_domain::thread::Thread>;
            fn budget(budget: ::portcullis_domain::id::BudgetId)
                -> Option<::portcullis_domain::budget::Budget>;
            fn held_budgets(page: ::portcullis_domain::ports::Page)
                -> ::portcullis_domain::ports::Rows<::portcullis_domain::budget::Budget>;
            fn content(digest: ::portcullis_canon::Digest)
                -> Option<::portcullis_domain::content::Content>;
            fn runs(
                status: Option<::portcullis_domain::run::RunStatus>,
                page: ::portcullis_domain::ports::Page
            ) -> ::portcullis_domain::ports::Rows<::portcullis_domain::run::Run>;
            fn children(
                parent: ::portcullis_domain::id::RunId,
                page: ::portcullis_domain::ports::Page
            ) -> ::portcullis_domain::ports::Rows<::portcullis_domain::run::Run>;
            fn orphans(page: ::portcullis_domain::ports::Page)
                -> ::portcullis_domain::ports::Rows<::portcullis_domain::run::Run>;
            fn steps(
                run: ::portcullis_domain::id::RunId,
                page: ::portcullis_domain::ports::Page
            ) -> ::portcullis_domain::ports::Rows<::portcullis_domain::step::Step>;
            fn questions(
                run: Option<::portcullis_domain::id::RunId>,
                status: Option<::portcullis_domain::question::QuestionStatus>,
                page: ::portcullis_domain::ports::Page
            ) -> ::portcullis_domain::ports::Rows<::portcullis_domain::question::Question>;
            fn due(
                notice: ::portcullis_domain::ports::Notice,
                page: ::portcullis_domain::ports::Page
            ) -> Vec<Result<
                ::portcullis_domain::question::Question,
                ::portcullis_domain::ports::DamagedRow,
            >>;
            fn approvals(question: ::portcullis_domain::id::QuestionId)
                -> Vec<::portcullis_domain::approval::Approval>;
            fn events(filter: ::portcullis_domain::ports::EventFilter)
                -> Vec<::portcullis_domain::ports::StoredEvent>;
        }

        fn spec(
            &self,
            digest: ::portcullis_canon::Digest,
        ) -> ::portcullis_domain::ports::BoxFuture<
            '_,
            Result<Option<Vec<u8>>, ::portcullis_domain::ports::StoreError>,
        > {
            self.$through(self.$first$(.$more)*.spec(digest))
        }

        fn open_outcomes<'a>(
            &'a self,
            scope: &'a ::portcullis_domain::scope::Scope,
            owner: &'a str,
        ) -> ::portcullis_domain::ports::BoxFuture<
            'a,
            Result<
                Vec<::portcullis_domain::ports::OpenOutcome>,
                ::portcullis_domain::ports::StoreError,
            >,
        > {
            self.$through(self.$first$(.$more)*.open_outcomes(scope, owner))
        }
    };
    (@each $inner:tt $through:ident
        $(fn $name:ident($($argument:ident: $kind:ty),*) -> $found:ty;)*) => {
        $($crate::store_reads! { @one $inner $through $name ($($argument: $kind),*) $found })*
    };
    (@one ($($field:ident).+) $through:ident $name:ident
        ($($argument:ident: $kind:ty),*) $found:ty) => {
        fn $name<'a>(
            &'a self,
            scope: &'a ::portcullis_domain::scope::Scope,
            $($argument: $kind),*
        ) -> ::portcullis_domain::ports::BoxFuture<
            'a,
            Result<$found, ::portcullis_domain::ports::StoreError>,
        > {
            self.$through(self.$($field).+.$name(scope, $($argument),*))
        }
    };
}
