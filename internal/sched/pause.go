package sched

// PauseRun excludes a run from grants until ResumeRun; it keeps its resources. It may be paused before
// its first request.
func (s *Scheduler) PauseRun(name string) {
	s.paused[name] = true
	s.reviewRun(name)
}

// ResumeRun ends PauseRun.
func (s *Scheduler) ResumeRun(name string) {
	delete(s.paused, name)
	s.reviewRun(name)
}

func (s *Scheduler) reviewRun(name string) {
	if x := s.registry.runs[name]; x != nil && x.state != holding {
		s.reviewState(x, s.queue.now)
	}
}

// PausePlan keeps all runs of a plan out of line, also those to come, until ResumePlan.
func (s *Scheduler) PausePlan(name string) {
	p := s.registry.planNamed(name)
	p.paused = true
	s.reviewPlan(p)
}

// ResumePlan ends PausePlan. Its runs stand where they stood.
func (s *Scheduler) ResumePlan(name string) {
	p := s.registry.planNamed(name)
	p.paused = false
	s.reviewPlan(p)
	s.registry.dropIdlePlan(p)
}

func (s *Scheduler) reviewPlan(p *plan) {
	for _, x := range s.registry.runs {
		if x.plan == p && x.state != holding {
			s.reviewState(x, s.queue.now)
		}
	}
}
