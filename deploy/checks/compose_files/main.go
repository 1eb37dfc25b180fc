// Loads a compose file as `docker compose config` does, by Compose's own loader and its JSON Schema, and prints the project as
// JSON with absolute paths. Exit code 1, with what is wrong on standard error, if it is none.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithInterpolation(true), cli.WithResolvedPaths(true), cli.WithProfiles([]string{"*"}))
	if err == nil {
		var text []byte
		if text, err = load(options); err == nil {
			fmt.Println(string(text))
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func load(options *cli.ProjectOptions) ([]byte, error) {
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	return project.MarshalJSON()
}
