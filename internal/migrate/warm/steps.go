package warm

import "github.com/decamp/decamp/internal/migrate"

// The steps that only a warm run has. Names and order are part of the recorded state.
const (
	stepPrepare  = "prepare"
	stepTrack    = "track"
	stepFreeze   = "freeze"
	stepRound    = "round"
	stepProve    = "prove"
	stepLook     = "look"
	stepWait     = "wait"
	stepPowerOff = "power off"
	stepLast     = "last round"
	stepPutBack  = "put back"
)

// do carries out some steps, each with what the one before found out.
type stepRunner func(facts migrate.Facts, names ...string) (migrate.Facts, error)

// runPipeline is the pipeline of a warm run.
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
	_, err = steps(facts, migrate.StepDetect, migrate.StepConvert, migrate.StepVerify, migrate.StepCommit, stepPutBack)
	return err
}

// runRounds goes on until the cutover. One that was not done is done again.
func runRounds(steps stepRunner, facts migrate.Facts) (migrate.Facts, error) {
	var err error
	for err == nil && !facts.Warm.Cutover {
		done := len(facts.Warm.Rounds)
		facts, err = steps(facts, stepFreeze, stepRound)
		if err == nil && len(facts.Warm.Rounds) > done {
			facts, err = proveAndWait(steps, facts)
		}
	}
	return facts, err
}

// proveAndWait is what follows a round. A look that was not done has another round before it.
func proveAndWait(steps stepRunner, facts migrate.Facts) (migrate.Facts, error) {
	facts, err := steps(facts, stepProve)
	if err == nil && facts.Warm.ToLook {
		facts, err = steps(facts, stepLook)
	}
	if err != nil || facts.Warm.ToLook {
		return facts, err
	}
	return steps(facts, stepWait)
}
