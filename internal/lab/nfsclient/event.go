package nfsclient

// An Event is something a datastore went through that its user did not ask for.
type Event struct {
	Kind EventKind
	Err  error // why, if it is bad news
	N    int   // calls sent again; heartbeats missed
}

// EventKind names what happened.
type EventKind string

// The kinds.
const (
	HeartbeatAnswered EventKind = "heartbeat answered"
	HeartbeatMissed   EventKind = "heartbeat missed"
	APDStarted        EventKind = "APD started"
	APDTimedOut       EventKind = "APD timed out"
	APDCleared        EventKind = "APD cleared"
	ConnLost          EventKind = "connection lost"
	ConnBack          EventKind = "connection back"
	LockRenewed       EventKind = "lock renewed"
	LockNotRenewed    EventKind = "lock not renewed"
	LockLost          EventKind = "lock lost"
	LockBroken        EventKind = "lock broken"
)
