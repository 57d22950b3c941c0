package warm

import "github.com/decamp/decamp/internal/migrate"

// The steps that only a warm run has. Names and order are part of the recorded state. Events have other
// names for four of them: see migrate.eventNames.
const (
	stepPrepare     = "prepare"    // preflight of a running VM
	stepTrack       = "track"      // turns change tracking on
	stepSnapshot    = "freeze"     // takes the snapshot of a round
	stepRound       = "round"      // copies a round
	stepVerifyRound = "prove"      // reads back the chunks of a round
	stepInspect     = "look"       // examines the guest after the first round
	stepWait        = "wait"       // waits for the next round or the cutover
	stepPowerOff    = "power off"  // begins the outage
	stepLast        = "last round" // copies the last round
	stepRestore     = "put back"   // restores change tracking
)

// stepRunner runs some steps, each with the facts of the previous one.
type stepRunner func(facts migrate.Facts, names ...string) (migrate.Facts, error)

// runPipeline runs the steps of a warm run.
func runPipeline(steps func(migrate.Facts, ...string) (migrate.Facts, error)) error {
	facts, err := steps(migrate.Facts{}, stepPrepare, stepTrack)
	for err == nil && !facts.Warm.Cutover {
		if facts, err = runRounds(steps, facts); err == nil {
			facts, err = steps(facts, stepPowerOff)
		}
	}
	for last := true; err == nil && last; last = !facts.Rooted() {
		facts, err = steps(facts, stepLast)
	}
	if err != nil {
		return err
	}
	_, err = steps(facts, migrate.StepDetect, migrate.StepConvert, migrate.StepVerify, migrate.StepCommit, stepRestore)
	return err
}

// runRounds runs rounds until the cutover. An incomplete round is repeated.
func runRounds(steps stepRunner, facts migrate.Facts) (migrate.Facts, error) {
	var err error
	for err == nil && !facts.Warm.Cutover {
		done := len(facts.Warm.Rounds)
		facts, err = steps(facts, stepSnapshot, stepRound)
		if err == nil && len(facts.Warm.Rounds) > done {
			facts, err = verifyAndWait(steps, facts)
		}
	}
	return facts, err
}

// verifyAndWait runs the steps after a round. If the inspection of the guest was skipped, another round
// precedes it.
func verifyAndWait(steps stepRunner, facts migrate.Facts) (migrate.Facts, error) {
	facts, err := steps(facts, stepVerifyRound)
	if err == nil && facts.Warm.InspectPending {
		facts, err = steps(facts, stepInspect)
	}
	if err != nil || facts.Warm.InspectPending {
		return facts, err
	}
	return steps(facts, stepWait)
}
