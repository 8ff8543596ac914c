package quality

import "strings"

// The word lists of ClassifyQuery, BM25 and ExpandQuery, in the form of textnorm.Words: lower case, without punctuation. They are
// tables, never written to after initialisation.

// comparing puts two things side by side.
var comparing = newPhrases(
	"vs", "versus", "difference between", "differences between", "the difference", "differ from", "different from", "compare", "compares", "compared to",
	"compared with", "comparing", "comparison", "better than", "worse than", "cheaper than", "more expensive than", "pros and cons",
	"advantages and disadvantages",
	"verschil tussen", "verschillen tussen", "het verschil", "de verschillen", "verschilt van", "verschillen van", "vergelijk", "vergelijken", "vergelijking",
	"vergeleken met", "in vergelijking met", "ten opzichte van", "beter dan", "slechter dan", "goedkoper dan", "duurder dan", "voor en nadelen",
	"unterschied zwischen", "unterschiede zwischen", "der unterschied", "vergleich", "vergleiche", "vergleichen", "verglichen mit", "im vergleich zu", "besser als",
	"günstiger als", "vor und nachteile",
	"différence entre", "différences entre", "la différence", "comparer", "comparé à", "comparaison", "par rapport à", "mieux que", "meilleur que",
	"avantages et inconvénients",
	"diferencia entre", "diferencias entre", "la diferencia", "comparar", "comparado con", "comparación", "en comparación con", "mejor que", "ventajas y desventajas",
)

// choosing begins a question that offers alternatives.
var choosing = set("which what welke welk wat wie welcher welche welches quel quelle quels quelles cuál cuáles")

// encompassing asks for all there is.
var encompassing = newPhrases(
	"overview", "an outline of", "summary", "summarise", "summarize", "sum up", "everything about", "everything on", "everything we", "everything you", "all about",
	"list all", "list of all", "show all", "show me all", "show me everything", "give me all", "give me everything", "name all", "what are all", "tell me about",
	"tell me more about", "tell us about", "what do we know", "what is known about", "in general", "background on", "introduction to", "main points", "key points",
	"main themes", "history of", "describe", "explain everything", "which topics", "all information", "all our", "all policies", "all documents",
	"overzicht", "samenvatting", "samenvatten", "alles over", "alles van", "alles wat", "vertel over", "vertel me over", "vertel me meer over", "vertel iets over",
	"vertel meer over", "vertel eens over", "wat weten we", "wat is er bekend", "in het algemeen", "in grote lijnen", "achtergrond van", "inleiding tot",
	"inleiding op", "alle informatie", "lijst van alle", "toon alle", "geef alle", "geef me alle", "noem alle", "laat alle", "hoofdpunten", "belangrijkste punten", "welke onderwerpen",
	"beschrijf", "geschiedenis van",
	"überblick", "übersicht", "zusammenfassung", "zusammenfassen", "alles über", "erzähl mir", "erzähle mir", "was wissen wir", "beschreibe", "im allgemeinen",
	"alle informationen", "zeige alle", "nenne alle",
	"aperçu", "vue d'ensemble", "un résumé", "résumé de", "résumé du", "résumer", "résume", "tout sur", "parle moi de", "en général", "décris", "que sait on",
	"liste de tous", "liste de toutes",
	"resumen", "resumir", "visión general", "todo sobre", "háblame de", "en general", "panorama de", "qué sabemos", "lista de todos", "lista de todas",
)

// splitVerbs are verbs whose other half ends the sentence: "vat het beleid samen".
var splitVerbs = map[string]string{"vat": "samen", "fasse": "zusammen", "fass": "zusammen"}

// factual begins a question whose answer is a fact.
var factual = newPhrases(
	"who", "whose", "whom", "when", "where", "which", "how many", "how much", "how long", "how old", "how often", "how far", "how high", "how large", "how big",
	"what time", "what date", "what day", "what year", "what number", "what percentage", "what amount",
	"wie", "wiens", "wanneer", "waar", "welk", "welke", "hoeveel", "hoelang", "hoe lang", "hoe vaak", "hoe oud", "hoe laat", "hoe hoog", "hoe groot", "hoe ver",
	"tot wanneer", "vanaf wanneer", "sinds wanneer", "met wie", "van wie", "bij wie", "aan wie", "voor wie",
	"wer", "wem", "wen", "wessen", "wann", "wo", "welcher", "welche", "welches", "wieviel", "wie viel", "wie viele", "wie lange", "wie oft", "wie alt", "wie hoch",
	"wie groß", "ab wann", "bis wann",
	"qui", "quand", "où", "combien", "quel", "quelle", "quels", "quelles", "à qui", "depuis quand",
	"quién", "quiénes", "cuándo", "dónde", "cuánto", "cuánta", "cuántos", "cuántas", "cuál", "cuáles", "a quién",
)

// factualAnywhere asks for a fact wherever it stands.
var factualAnywhere = newPhrases(
	"how many", "how much", "how long", "how often", "phone number", "telephone number", "email address", "e mail address", "postal address", "opening hours",
	"account number", "deadline for", "price of", "cost of",
	"hoeveel", "hoe lang", "hoe vaak", "telefoonnummer", "e mailadres", "emailadres", "openingstijden", "rekeningnummer", "prijs van", "kosten van",
	"wie viele", "telefonnummer", "öffnungszeiten", "numéro de téléphone", "combien", "número de teléfono",
)

// asking begins a question about how or whether, although its first word alone would ask for a fact.
var asking = newPhrases(
	"wie kann ich", "wie kann man", "wie können wir", "wie mache ich", "wie macht man", "wie funktioniert", "wie geht", "wie bekomme ich", "wie wird", "wie werden", "wie soll",
	"where do i start", "which means",
)

// askingWord begins any other question.
var askingWord = set(`how what why can could may might must should shall do does did is are was were will would am has have
	hoe wat waarom waardoor waarmee kan kunnen mag mogen moet moeten zal zou is zijn heb heeft hebben krijg krijgt wordt worden ben
	was warum wieso weshalb kann können darf muss soll ist sind habe hat gibt
	comment pourquoi que quoi puis peut peux dois doit est sont ai y
	cómo qué por puedo puede debo debe es son hay tengo`)

// courtesies stand in front of what is asked.
var courtesies = newPhrases(
	"hi", "hello", "hey", "dear", "please", "thanks", "thank you", "ok", "okay", "and", "so", "but", "well", "good morning", "good afternoon", "good evening",
	"can you tell me", "could you tell me", "can you explain", "could you explain", "please tell me", "tell me", "do you know", "i want to know", "i would like to know",
	"i'd like to know", "i was wondering", "i am wondering", "i wonder",
	"hoi", "hallo", "dag", "beste", "goedemorgen", "goedemiddag", "goedenavond", "bedankt", "dank je", "graag", "en", "dus", "maar", "nou", "kun je me vertellen",
	"kunt u mij vertellen", "kan je me vertellen", "kun je uitleggen", "kunt u uitleggen", "vertel me", "vertel", "weet je", "weet jij", "weet u", "ik wil weten", "ik wil graag weten",
	"ik vroeg me af", "mijn vraag is", "vraag",
	"guten tag", "guten morgen", "bitte", "danke", "können sie mir sagen", "kannst du mir sagen", "weißt du",
	"bonjour", "salut", "merci", "s'il vous plaît", "pouvez vous me dire", "peux tu me dire",
	"hola", "buenos días", "buenas tardes", "gracias", "por favor", "puedes decirme", "me puede decir",
)

// functionWords carry grammar and no topic: left out of BM25's query and never offered as expansion.
var functionWords = set(`a about above after again against all also am an and any are aren't as at be because been before being below between both but by can
	can't cannot could did didn't do does doesn't doing don't down during each few for from further get gets got had has have having he her here hers him his how i if in into
	is isn't it it's its itself just let let's me more most my myself no nor not now of off on once only or other our ours out over own per same she should so some such
	than that that's the their theirs them then there these they this those through to too under until up upon us very was we were what what's when where which while who whom
	whose why will with within without won't would you your yours yourself may might must shall
	aan al alle alleen als ben bent bij daar dan dat de deze die dit doen doet door dus een eens en er ergens geen gaan gaat had hadden heb hebben hebt heeft hem het hier hij
	hoe hoeveel hun ik in is ja je jij jou jouw jullie kan kun kunnen kunt maar mag me mee meer men met mij mijn moet moeten mogen na naar nee niet niets nog nu of om
	omdat onder ons ook onze op over per te tegen ten ter toch toe tot tussen uit uw van vanaf veel via voor waar waarom wanneer want waren was wat we wel welk welke werd
	werden wie wij wil willen word worden wordt ze zelf zich zij zijn zo zoals zonder zou zouden zullen
	aber alles als am auch auf aus bei bin bis bist da damit das dass dein dem den der des dich dir du durch ein eine einem einen einer eines er es euch für hat
	hatte ich ihm ihn ihr ihre im ist kann kein keine können man mein mich mir mit nach nicht noch nur oder sein seine sich sie sind soll und uns unser unter vom von vor war
	warum was weil wenn wer werden wie wir wird wo zu zum zur über
	au aux avec ce ces cette comment dans des du elle elles est et être eu il ils je la le les leur leurs lui ma mais mes moi mon ne nos notre nous on ont ou où par pas
	plus pour pourquoi que quel quelle qui sa sans ses si son sont sur ta te tes toi ton tu un une vos votre vous à c'est d'un d'une j'ai l'on n'est qu'est
	al como con cuando cuándo cuál cómo de del donde dónde el ella ellos en entre era es esta este esto está están fue ha hay la las le les lo los me mi mis muy más no nos
	o para pero por porque que qué quién se ser si sin sobre son su sus también te tiene tu un una uno y ya yo`)

func isFunctionWord(w string) bool { return functionWords[w] }

func set(words string) map[string]bool {
	list := strings.Fields(words)
	s := make(map[string]bool, len(list))
	for _, w := range list {
		s[w] = true
	}
	return s
}
