package nfsclient

// An Event is a change of the connection, the server or a lock that no call reports.
type Event struct {
	Kind EventKind // what happened
	Err  error     // cause of a failure; nil otherwise
	N    int       // number of calls sent again, of missed heartbeats or of failed renewals
}

// EventKind is the kind of an event.
type EventKind string

// The kinds.
const (
	HeartbeatAnswered EventKind = "heartbeat answered" // reply to a heartbeat
	HeartbeatMissed   EventKind = "heartbeat missed"   // no reply to a heartbeat in time
	APDStarted        EventKind = "APD started"        // third missed heartbeat: the APD timer runs
	APDTimedOut       EventKind = "APD timed out"      // end of the APD timer: I/O fails
	APDCleared        EventKind = "APD cleared"        // reply to a heartbeat while the APD timer ran or after it
	ConnLost          EventKind = "connection lost"    // end of a connection
	ConnBack          EventKind = "connection back"    // a new connection; N calls are sent again
	LockRenewed       EventKind = "lock renewed"       // successful renewal of a lock
	LockNotRenewed    EventKind = "lock not renewed"   // failed renewal of a lock
	LockLost          EventKind = "lock lost"          // too many failed renewals: I/O on the file fails
	LockBroken        EventKind = "lock broken"        // removal of another host's stale lock
)
