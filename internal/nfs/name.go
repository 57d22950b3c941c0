package nfs

import "strings"

const (
	maxName = 255 // bytes, as on every file system an export is likely on
	maxPath = 4096

	// maxNameArg is how long a name may be in order to be refused politely.
	maxNameArg = maxPath
)

// checkName refuses what cannot be the name of something in a folder. "." and ".." pass:
// each procedure has its own answer to them.
func checkName(name string) error {
	switch {
	case name == "", strings.ContainsAny(name, "/\x00"):
		return statusAcces
	case len(name) > maxName:
		return statusNameTooLong
	}
	return nil
}

func isDot(name string) bool { return name == "." || name == ".." }

// checkNew refuses names that nothing can be created under.
func checkNew(name string) error {
	if isDot(name) {
		return statusExist
	}
	return checkName(name)
}

// checkOld refuses names that cannot be taken away.
func checkOld(name string) error {
	if isDot(name) {
		return statusInval
	}
	return checkName(name)
}
