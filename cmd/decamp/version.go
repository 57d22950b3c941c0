package main

import "github.com/spf13/cobra"

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
		RunE:        func(*cobra.Command, []string) error { return p.out.printVersion() },
	}
}
