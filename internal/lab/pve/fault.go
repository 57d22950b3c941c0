package pve

// Faults are the failures that the node simulates from the next request on. The zero value is a node
// without failures.
type Faults struct {
	Taken    int               // so many VMIDs are taken between nextid and the request to create
	Tasks    map[string]string // tasks of a type (qmcreate, qmconfig, qmstart, imgcopy) end with this error, and revert their changes
	CutAfter int64             // an upload's connection is cut after so many bytes of its body, if Cuts
	Cuts     int               // how often
	Garble   bool              // uploads arrive changed
	Hold     chan struct{}     // tasks wait until it is closed, if not nil
	Down     int               // so many requests are answered as while pveproxy restarts: not at all

	NoKVM   bool     // the node's processor has no virtualisation that guests could use
	FreeMiB int      // memory that guests can have; 0: enough
	Offline []string // storages that cannot be activated
	Dies    bool     // guests end right after they were started
	HA      bool     // the cluster's HA manager starts guests, after the task has ended
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
