"""Topics created and deleted under `controller_mutation_rate`: counted, cut, held or refused."""
