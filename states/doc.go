// Package states says what an environment can be: nine states, one file each,
// and one table of the moves between them.
//
// The table is data. The state machine, `netsandbox states`, the help texts and
// the table below are made from it and a test holds them equal, so there is
// one place where a move is permitted. What must be true for a move is named
// here and decided in package guards; how a move is made is package workflow's.
// This package imports nothing of ours and does no I/O.
//
// A state file lists the edges that leave its state. Three things hold for all
// of them: no two edges of a state share a trigger, nothing but commit, rollback
// and lapse leaves Trial, and only a check that found evidence wanting moves an
// environment backward without being asked to.
//
// # Table
//
//	FROM           ON            TO          GUARDS
//	any but trial  stage         staged      -
//	any but trial  exec          exercised   -
//	any but trial  reset         created     view-idle
//	any but trial  reset-partly  staged      view-idle
//	created        check         created     -
//	staged         check         checked     changes-present circuits-preserved, else staged
//	exercised      check         checked     changes-present circuits-preserved, else exercised
//	checked        check         checked     layer-unchanged circuits-preserved, else exercised
//	checked        plan          planned     changes-present circuits-fresh canary-present changes-representable origins-unchanged twin-present
//	planned        check         planned     layer-unchanged circuits-preserved, else exercised
//	planned        plan          planned     changes-present circuits-fresh canary-present changes-representable origins-unchanged twin-present
//	planned        authorize     authorized  plan-current authority-held
//	authorized     check         authorized  layer-unchanged circuits-preserved, else exercised
//	authorized     revoke        planned     -
//	authorized     expire        planned     -
//	authorized     trial         trial       plan-current authority-held circuits-fresh origins-unchanged host-lock lease-armed
//	trial          commit        committed   trial-preserved lease-held confirmed
//	trial          rollback      rolledback  undo-verified
//	trial          lapse         rolledback  undo-verified
//	committed      rollback      rolledback  reversible undo-verified
//	rolledback     check         checked     changes-present circuits-preserved, else rolledback
package states
