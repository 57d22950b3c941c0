package pve

// Faults are the failures that the node simulates from the next request on. The zero value is a node
// without failures.
type Faults struct {
	Taken int // number of VMIDs that another client uses between nextid and the request to create
	// error by type of task (qmcreate, qmconfig, qmstart, imgcopy), with which tasks of the type end after
	// reverting their changes
	Tasks    map[string]string
	CutAfter int64         // bytes of an upload's body after which its connection is cut, if Cuts is not 0
	Cuts     int           // number of uploads that are cut
	Garble   bool          // whether one byte of each upload is changed
	Hold     chan struct{} // tasks wait until it is closed; nil starts them at once
	Down     int           // number of requests without a response, as while pveproxy restarts

	NoKVM   bool     // whether the node's processor has no virtualisation for guests
	FreeMiB int      // memory for guests in MiB; 0 is unlimited
	Offline []string // storages that cannot be activated
	Dies    bool     // whether guests end right after their start
	HA      bool     // whether the cluster's HA manager starts guests, after the task has ended
}

// SetFaults replaces the faults.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// taskFault returns the error that tasks of this kind end with, empty if they succeed, and the channel
// that they wait for, nil if they start at once.
func (s *Server) taskFault(kind string) (text string, hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.Tasks[kind], s.faults.Hold
}

// nextCut reports whether this upload is cut, and after how many bytes. Each cut counts once.
func (s *Server) nextCut() (after int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Cuts == 0 {
		return 0, false
	}
	s.faults.Cuts--
	return s.faults.CutAfter, true
}

// dropsRequest reports whether this request gets no response. Each one counts once.
func (s *Server) dropsRequest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Down == 0 {
		return false
	}
	s.faults.Down--
	return true
}
