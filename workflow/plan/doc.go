// Package plan is the exact list of what a trial would do, and the store that
// keeps it together with the bytes it needs.
//
// A [Plan] is content-addressed: its [Plan.Digest] covers the changes with their
// wanted content and their origins, the circuits, the policy and the host, and
// nothing that depends on when or how often somebody looked. Authority is given
// for a digest, so two plans that would do the same are the same plan.
//
// [Store.Freeze] copies every wanted file out of the view's layer, hashes the
// copy, and publishes plan and bytes together by one rename: what is in the
// store is whole. A trial uses those bytes only; what the view does afterwards
// is another plan. [Store.Open] refuses anything that is not what its name says.
package plan
