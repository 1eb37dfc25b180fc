// node main.mjs WORK.json: drives the library that the work names.
import { work } from './told.mjs'

await import(`./${work.client}.mjs`)
