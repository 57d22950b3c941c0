package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/buildinfo"
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
		return out.printJSON(buildinfo.Current())
	}
	_, err := io.WriteString(out, buildinfo.Current().Line("decamp"))
	return err
}
