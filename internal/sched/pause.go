package sched

// PauseRun excludes a run from grants until ResumeRun; it keeps its resources. It may be paused before
// its first request.
func (s *Scheduler) PauseRun(name string) {
	s.paused[name] = true
	s.reviewRun(name)
}

// ResumeRun ends PauseRun. A run that is not paused is left unchanged.
func (s *Scheduler) ResumeRun(name string) {
	delete(s.paused, name)
	s.reviewRun(name)
}

// reviewRun moves a waiting run into or out of the queue after a change of its pause. A run that holds
// its resources is left unchanged.
func (s *Scheduler) reviewRun(name string) {
	if x := s.registry.runs[name]; x != nil && x.state != holding {
		s.reviewState(x, s.queue.now)
	}
}

// PausePlan excludes all runs of a plan from grants until ResumePlan, also runs that are submitted
// later.
func (s *Scheduler) PausePlan(name string) {
	p := s.registry.planNamed(name)
	p.paused = true
	s.reviewPlan(p)
}

// ResumePlan ends PausePlan. The runs keep their order of arrival.
func (s *Scheduler) ResumePlan(name string) {
	p := s.registry.planNamed(name)
	p.paused = false
	s.reviewPlan(p)
	s.registry.dropIdlePlan(p)
}

// reviewPlan calls reviewState for the waiting runs of a plan. It reads all runs of the scheduler.
func (s *Scheduler) reviewPlan(p *plan) {
	for _, x := range s.registry.runs {
		if x.plan == p && x.state != holding {
			s.reviewState(x, s.queue.now)
		}
	}
}
