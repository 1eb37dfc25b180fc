// Reads Kubernetes manifests as JSON lines and tells of each that it does not have the form that the Prometheus operator's own types
// say: an unknown key, a value of a wrong type. Exit code 1 if there was one, or a kind that it does not know.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

func main() {
	kinds := map[string]func() any{
		"PodMonitor":     func() any { return &monitoring.PodMonitor{} },
		"PrometheusRule": func() any { return &monitoring.PrometheusRule{} },
		"ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
	}
	failed := false
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		problem := json.Unmarshal(lines.Bytes(), &head)
		made, known := kinds[head.Kind]
		switch {
		case problem != nil:
		case !known || head.APIVersion != "monitoring.coreos.com/v1":
			problem = fmt.Errorf("no kind of the Prometheus operator")
		default:
			strict := json.NewDecoder(bytes.NewReader(lines.Bytes()))
			strict.DisallowUnknownFields()
			problem = strict.Decode(made())
		}
		if problem != nil {
			fmt.Printf("%s %s: %v\n", head.Kind, head.Metadata.Name, problem)
			failed = true
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Println(err)
		failed = true
	}
	if failed {
		os.Exit(1)
	}
}
