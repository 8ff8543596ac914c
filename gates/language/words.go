package language

import "strings"

// The word lists, in the form of textnorm.Words: lower case. They are tables, never written to after initialisation.

// known are the languages with a list, in the order of their bits.
var known = [...]struct {
	tag, name string
	words     string
	// particles are words that names are made of too ("Los Angeles", "van der Berg"). They count half, and never alone.
	particles string
}{
	{"en", "English", `a about after again all also am an and any are as at be because been before being below between both but by can could did do does doing down
		during each few for from further get gets got give had has have having he her here hers him his how i if in into is it its itself just let like make many me
		more most much my need no nor not now of off on once only or other our ours out over own please same she should show since so some such take tell than that
		the their theirs them then there these they this those through to too under until up upon us use used using very want was we were what when where whether
		which while who whom whose why will with within without would yes yet you your yours
		aren't can't couldn't didn't doesn't don't hasn't haven't he's how's i'd i'll i'm i've isn't it's let's she's shouldn't that's there's they're wasn't we're
		weren't what's when's where's who's won't wouldn't you're you've`, ""},
	{"nl", "Dutch", `aan alle alleen als altijd ander andere bedankt betekent bij daar daarom dat deze die dit doe doen doet door dus een eens eigenlijk en
		er ergens gaan gaat geef geen goedemiddag goedemorgen goedenavond goedendag graag had hadden hallo heb hebben hebt heeft hem hen het
		hier hij hoe hoelang hoeveel hoi hun iemand iets ik ja je jij jou jouw jullie kan kon kost kosten krijg krijgen krijgt kun kunnen kunt
		laat maak maar mag mee meer mij mijn moet moeten mogen naar nee niemand niet niets nog nou omdat onder ons onze ook op opnieuw ouder
		over sinds tegen tijdens toch toe toen tot tussen uit uw vaak vanaf vandaag veel vertel via vind vinden voor vraag waar waarmee waarom
		waarop waarvoor wanneer wat weer weet welk welke werd werden werkt wie wij wil willen wilt word worden wordt zal ze zelf zich zien zij
		zijn zit zo zoals zoek zonder zou zouden zullen`, `de den der in is of van ten ter te`},
	{"de", "German", `aber alle als auch auf aus bei beim bin bis bist bitte damit danach dann das dass dein deine dem denn dich dir doch dort durch dürfen
		ein eine einem einen einer eines er es etwas euch für gegen geht gibt habe haben hallo ja hast hat hatte heute hier ich ihm ihn ihnen ihr ihre
		immer ist jede jeder jetzt kann kannst kein keine können könnt könnte mache machen macht man mehr mein meine meinem meinen meiner mich
		mir muss müssen nach nicht nichts noch nur ob oder ohne schon sehr sein seine seit sich sie sind soll sollte und uns unser unsere unter
		viel viele vom vor wann war waren warum weil welche welchem welchen welcher welches wenn wer werde werden wie wieder wieviel wir wird
		wo wurde wurden zum zur zwischen über`, `am an das dem den der des die du im in ist so um von was zu`},
	{"fr", "French", `alors après au aucun aussi autre aux avant avec avez avoir beaucoup bonjour c'est car ce cela celle celui ces cet cette chaque chez
		combien comment d'un d'une d'être dans depuis dois doit donc elle elles encore entre est et eu eux faire fait faut il ils j'ai je jusqu
		l'on leur leurs lui mais mes mon même n'ai n'est n'y ne nos notre nous on ont ou où par parce pas pendant peu peut peux plusieurs pour
		pourquoi puis puisque qu'elle qu'est qu'il qu'un qu'une quand que quel quelle quelles quels qui quoi s'il sans são sera ses si sont sous
		suis sur t'il ta tes toi ton toujours tous tout toute toutes trouver très tu une vers veux vos votre voudrais vous y être`, `à au de des du en et la le les ma mon sa se son un`},
	{"es", "Spanish", `adónde ahora al algo alguien alguna algunas algún antes aquí así cada como cuando cuya cuál cuáles cuándo cuánta cuántas cuánto cuántos
		cómo debe deben debo después donde durante dónde ella ellos encuentro era eres esa ese eso esta estas este esto estos está están fue
		había hace hacer hacia hasta hay haya hola las los mis mucho muy más nada necesito ni nos nosotros nuestra nuestro nunca otra otro para
		pero poco por porque puede pueden puedo pues quien quiero quién quiénes qué según sin sobre sois somos son soy sus también tanto
		tenemos tener tengo tiene tienen todas todavía todo todos tras tus una unas unos usted ustedes vez ya yo`, `con de del el en es la las le les lo los me mi no o que se si su te tu un y`},
	{"it", "Italian", `abbiamo adesso agli ai alla alle allo anche ancora avere aveva bisogno c'è che chi ci ciò come cos'è cosa così cui dagli dai dal dalla
		dalle dallo degli dei della delle dello deve devo devono dopo dov'è dove e essere fare fino gli ha hanno ho il l'ho loro mai mia
		mie miei mio molto negli nei nel nella nelle nello noi non nostra nostro ogni oppure per perché però più poi possiamo posso possono
		prima può qual quale quali quando quanta quante quanti quanto questa queste questi questo qui quindi sarà sei senza sia siamo siete
		sono sotto stata stato sua sugli sui sul sulla sulle suo suoi tra trovo tutte tutti tutto un'altra una uno vorrei vostra vostro è`, `a al con da del di e i in la le lo ma se si su un`},
	{"pt", "Portuguese", `ainda algum alguma ao aos aquela aquele aqui até cada como da das dela dele depois dessa desse desta deste deve devo dos ela elas ele
		eles em enquanto entre era essa esse esta estas este estes estou está estão eu fazer foi foram há isso isto já lhe mais mas mesmo meu
		meus minha minhas muito muitos na nas nem nenhum nos nossa nosso num numa não onde os ou outra outro para pela pelas pelo pelos pode
		podem por porque posso quais qual quando quanta quantas quanto quantos quem quero sem ser seu seus sobre sua suas são só também tem
		tenho ter teu toda todas todo todos tudo têm você vocês vou às é`, `a com da de do dos e em é no o os que se um uma`},
}

// alsoEnglish are words of the other languages that an English query may hold too: as a word, a name, a borrowing or an abbreviation in
// small letters. They count half and never alone, as particles do, and not for English.
const alsoEnglish = `ai al alle als art aus bang ben bent bin bis bonjour brand car ces chat chi come comment con d'être dai dal dan das dat dem den der des die dies dim dir do
	donc door dos du durante echo elle em en encore era es est et fine fort gang gift gli gut ha hasta hat hay hell hen her hoe hola hold hun il ist ja
	kind la las last le les lo long los mag mai man mas mee mein men merci mes met mi mia mir mis mist mit na nas nei nett noi non nos nou nova nu num ob
	ons op ou over pain pan para pas pendant per plus poco por pour pro que qui rat rest rock rot rue sale sans se sein sem ser set sex si sia sin slot
	son sous soy spring star stem strand su sua sur são tag tan te ten ter tes todo toe toi ton tot tout tu tum um un und under une uno usted uw van vez
	via von vs wand war waren was wat wet wil wilt wo word y ya zip zit über`

// set is which of known a word belongs to, by bits.
type set uint16

const (
	english, spanish = 0, 4 // in known
	// half marks the languages of which a word is a particle, this many bits up.
	half = len(known)
)

var _ = [1]struct{}{}[(2*half-1)/16] // both halves fit into a set

var lexicon = func() map[string]set {
	words := map[string]set{}
	for i, l := range known {
		for _, w := range strings.Fields(l.words) {
			words[w] |= 1 << i
		}
		for _, w := range strings.Fields(l.particles) {
			words[w] |= 1 << (half + i)
		}
	}
	for _, w := range strings.Fields(alsoEnglish) {
		if in := words[w] &^ (1 << english); in != 0 {
			words[w] = (in | in<<half) &^ (1<<half - 1)
		}
	}
	return words
}()

// Known are the tags of the languages that Detect tells by their words.
func Known() []string {
	tags := make([]string, len(known))
	for i, l := range known {
		tags[i] = l.tag
	}
	return tags
}
