package main

import (
	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/planfile"
)

const planHelp = `
Create, check and execute plan files. A plan file lists VMs with their destinations and
options.

A plan is YAML, contains no secrets, and can be kept in git. docs/plan-files.md and the schema
describe its keys.
`

const planExamples = `
decamp plan init esxi://root@esx1 --to dir:/srv/vm > plan.yaml
decamp plan check plan.yaml
decamp plan simulate plan.yaml
decamp plan run plan.yaml
decamp plan drop wave-1
decamp plan schema > plan.schema.json
`

// newPlan returns the command decamp plan with its subcommands.
func newPlan(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "plan COMMAND",
		Short:       "Create, check and execute plans of many VMs",
		Long:        trimHelp(planHelp),
		Example:     trimHelp(planExamples),
		Annotations: exitCodes(),
		Args:        noSuchCommand,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlanInit(p), newPlanCheck(p), newPlanRun(p), newPlanSimulate(p), newPlanDrop(p), newPlanSchema(p))
	return cmd
}

const planSchemaHelp = `
Print the JSON schema (2020-12) of plan files, for editors and other programs. It accepts
every plan that decamp accepts. Only decamp plan check checks values that depend on others.

decamp plan init writes a comment with the address of this schema, which editors download.
Without access to it, name a local file, as in the second example.
`

const planSchemaExamples = `
decamp plan schema > plan.schema.json
sed -i '1s,.*,# yaml-language-server: $schema=plan.schema.json,' plan.yaml
`

// newPlanSchema returns the command decamp plan schema.
func newPlanSchema(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of plan files", Long: trimHelp(planSchemaHelp), Example: trimHelp(planSchemaExamples),
		Args: exactArgs(), Annotations: exitCodes(),
		RunE: func(*cobra.Command, []string) error {
			schema, err := planfile.Schema()
			if err != nil {
				return err
			}
			_, err = p.out.Write(schema)
			return err
		},
	}
}
