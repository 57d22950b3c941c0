package fault

// ExitCode returns the process exit status for err: 0 for nil, and one fixed number
// per Kind so that scripts can tell a full disk from a wrong password. The numbers
// are part of the command line's contract and never change meaning.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	return exitCodes[KindOf(err)]
}

var exitCodes = map[Kind]int{
	Internal:    1,
	Invalid:     2, // as shells and cobra use it: wrong usage
	NotFound:    3,
	Denied:      4,
	Unreachable: 5,
	Conflict:    6,
	Unsupported: 7,
	Corrupt:     8,
	Full:        9,
	Transient:   10,
	Changed:     11,
	Canceled:    130, // 128 + SIGINT
}
