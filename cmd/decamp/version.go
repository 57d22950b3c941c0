package main

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

const versionHelp = `
Print the version of decamp, of Go and of the platform it was built for.
`

// newVersion returns the command decamp version.
func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Long:        trimHelp(versionHelp),
		Args:        exactArgs(),
		Annotations: exitCodes(),
		RunE:        func(*cobra.Command, []string) error { return showVersion(p.out) },
	}
}

// showVersion prints the version.
func showVersion(out *output) error {
	if out.json {
		return out.printJSON(map[string]string{"version": version, "go": runtime.Version(), "platform": platform()})
	}
	_, err := io.WriteString(out, versionLine())
	return err
}
