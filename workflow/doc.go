// Package workflow is how an environment moves: one file a step, each reading
// top to bottom in the order things happen.
//
// A step gathers facts (which may take long: it reads layers, runs canaries),
// then makes its move in one journal transaction: it folds what exec ran in the
// meantime, compares the stored state, asks the guards, and writes state,
// evidence and event together. If anything moved since the facts were gathered,
// the step starts over. No lock is held across an effect, and every effect on
// the host has its intent on disk before it.
//
// The parts: journal is what happened, execlog what exec ran, plan what would be
// done, txn what is being done, lease who undoes it, report what is shown.
// Operating systems are behind the contract in package backends.
package workflow
